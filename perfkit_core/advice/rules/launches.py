"""Rule 15: the device waits for the host, which launches many short kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core import intervals, nesting
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Assumption, Candidate
from perfkit_core.advice.rules import calls
from perfkit_core.advice.rules.device_time import busy_ns
from perfkit_core.advice.rules.phrases import counted, millis, part_of_step, verb
from perfkit_core.intervals import Intervals
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.batching import Batch
from perfkit_core.replay.edits.gaps import Shorten
from perfkit_core.replay.quantity import Quantity
from perfkit_core.schema import COMMUNICATION, DATALOADER, KERNEL, MEMCPY, OPERATOR, RUNTIME, SYNC
from perfkit_core.trace import BoolArray, IntArray, Trace

A_KERNEL_NS: Final = Quantity(
    300,
    2_500,
    6_000,
    in_english("prior: a node of a captured graph, a compiled launch of every second kernel, a bare launch"),
)
BETWEEN: Final = Quantity(0.0, 0.3, 0.8, in_english("prior: Python between the launches is not run, or run as before"))
_GAP_NS: Final = 1_000
_ONCE: Final = 20.0
"""What takes so many times the usual for a kernel did more than launch it."""
_RECURS: Final = 3
"""From so many steps on their median leaves out what takes place once."""


@dataclass(frozen=True, slots=True)
class _Launches:
    """Outermost host events that launch kernels and wait for nothing, the step of each, and their kernels in a step;
    and those of them that did something else first: loaded a module, took memory."""

    rows: IntArray
    group: IntArray
    kernels: float
    once: IntArray


def launch_bound(facts: Facts) -> list[Candidate]:
    """Rule 15: the host is busy for longer than the device, whose kernels are as short as launches."""
    facts.need_device()
    trace = facts.trace
    kernels = calls.in_steps(facts, np.flatnonzero(trace.rows("kind", KERNEL) & (trace.ints("launched_by") >= 0)))
    if not len(kernels):
        return []
    short = float(np.median(trace.ints("dur_ns")[kernels]))
    found = _launches(facts, kernels)
    if short >= facts.thresholds.launch_kernel_ns or found.kernels < 1:
        return []
    between = {rank: _between(facts, found, rank) for rank in facts.ranks}
    host, device = _host_ns(facts, between[facts.rank], found.once), round(busy_ns(facts))
    idle = device < facts.thresholds.launch_device_share * facts.step_ns
    return [_batched(facts, found, between, host, device, short)] if host > device and idle else []


def _host_ns(facts: Facts, between: Intervals, once: IntArray) -> int:
    """Median over the steps of ``facts.rank`` of the time in which a thread calls operators or the runtime, without
    what it waits for and does ``once``, and in which Python passes between the launches."""
    trace, graph = facts.trace, facts.replay.graph
    others = np.zeros(len(trace), np.bool_)
    others[once] = True
    others |= nesting.lies_in(trace.ints("parent"), others)
    working = trace.rows("kind", OPERATOR, RUNTIME) & ~trace.rows("phase", DATALOADER) & ~others
    nodes = facts.replay.hosts(facts.rank)
    nodes = nodes[(graph.row[nodes] >= 0) & working[graph.row[nodes]]]
    start = facts.replay.recorded_ns(nodes)
    busy = intervals.union(np.append(start, between[0]), np.append(start + graph.dur_ns[nodes], between[1]))
    return int(np.median(facts.within_steps(busy)))


def _launches(facts: Facts, kernels: IntArray) -> _Launches:
    trace = facts.trace
    launches = trace.ints("launched_by")[kernels]
    roots = nesting.outermost(trace.ints("parent"), calls.operators(trace) | trace.rows("kind", RUNTIME))
    free = ~_waits(trace, roots)[roots[launches]] & (facts.replay.first[roots[launches]] >= 0)
    rows, launched = np.unique(roots[launches[free]], return_counts=True)
    each_ns = trace.ints("dur_ns")[rows] / launched
    once = np.zeros(len(rows), np.bool_)
    if len(rows) and facts.mine.sum() < _RECURS:
        once = each_ns > _ONCE * np.median(each_ns)
    count = calls.typical(facts, kernels[free])
    return _Launches(rows[~once], calls.step_groups(trace, rows[~once]), count, rows[once])


def _waits(trace: Trace, roots: IntArray) -> BoolArray:
    """True for the outermost calls that copy from or to the host, communicate or synchronise: no graph holds them."""
    copies = np.flatnonzero(trace.rows("kind", MEMCPY) & (trace.ints("launched_by") >= 0))
    kinds = trace.codes("copy_kind")
    inside = kinds.lookup(np.array([kind.startswith(("DtoD", "PtoP")) for kind in kinds.values], np.bool_), False)
    stops = np.append(
        trace.ints("launched_by")[copies[~inside[copies]]],
        np.flatnonzero(trace.host & trace.rows("kind", SYNC, COMMUNICATION)),
    )
    found = np.zeros(len(trace), np.bool_)
    found[roots[stops][roots[stops] >= 0]] = True
    return found


def _batched(
    facts: Facts, found: _Launches, between: dict[int, Intervals], host: int, device: int, short: float
) -> Candidate:
    cost = _cost(facts, found)
    return Candidate(
        say(
            "the host works for {part} to launch {counted} that {verb} the device busy for {device} ms; the "
            "typical kernel takes {short:.1f} µs",
            part=part_of_step(facts, host),
            counted=counted(found.kernels, in_english("kernel"), in_english("kernels")),
            verb=verb(found.kernels, "keeps", "keep"),
            device=millis(device),
            short=short / 1000.0,
        ),
        evidence={
            "host_busy_ns": host, "device_busy_ns": device, "kernels": round(found.kernels), "kernel_ns": round(short),
            "step_ns": facts.step_ns,
        },
        rows=found.rows,
        edits=(Batch(found.rows, cost, _GAP_NS, found.group), Shorten(between, BETWEEN)),
        ceiling_ns=facts.step_ns - device,
        preconditions=(
            say("the host is busy for longer than the device"),
            say("the device is idle for most of the step"),
        ),
        vetoes=(
            say("calls that copy to or from the host, synchronise or communicate stay as they are"),
            *_left_out(facts, found),
        ),
        assumptions=(
            Assumption("launches_ns", cost, cost.source),
            Assumption("between_factor", BETWEEN, BETWEEN.source),
        ),
        risks=(say("shapes that change are compiled or captured anew"), say("a captured graph keeps its memory")),
        conflicts=("elementwise-chain",),  # a compiler fuses them, too
    )  # fmt: skip


def _left_out(facts: Facts, found: _Launches) -> tuple[str, ...]:
    if not len(found.once):
        return ()
    text = say(
        "{counted} of {times:.0f} times the usual length, which few steps cannot tell from what happens once, too",
        counted=counted(len(found.once), in_english("call"), in_english("calls")),
        times=_ONCE,
    )
    return (text,)


def _cost(facts: Facts, found: _Launches) -> Quantity:
    """What a step's launches take afterwards: never more than now."""
    now = calls.typical(facts, found.rows, facts.trace.ints("dur_ns")[found.rows])
    low, mid, high = (min(found.kernels * one, now) for one in (A_KERNEL_NS.low, A_KERNEL_NS.mid, A_KERNEL_NS.high))
    return Quantity(low, mid, high, A_KERNEL_NS.source)


def _between(facts: Facts, found: _Launches, rank: int) -> Intervals:
    """Time of the steps of a rank between the first and the last of the calls in which none of its threads does
    recorded work."""
    trace = facts.trace
    start, end = trace.ints("start_ns"), trace.end_ns
    here = trace.ints("rank") == rank
    order = np.lexsort((start[found.rows], found.group))
    order = order[here[found.rows[order]]]
    rows, group = found.rows[order], found.group[order]
    at = np.flatnonzero(np.diff(group, prepend=-1))
    hull = intervals.union(start[rows[at]], np.maximum.reduceat(end[rows], at) if len(at) else end[rows])
    work = np.flatnonzero(here & trace.host & trace.rows("kind", OPERATOR, RUNTIME, SYNC, COMMUNICATION, DATALOADER))
    return intervals.subtract(hull, intervals.union_of(work, start, end))


RULES: Final = (Rule("launch-bound", 15, 1, "Launch kernels together", launch_bound),)
