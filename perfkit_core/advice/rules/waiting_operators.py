"""Rule 9: an operator whose time is waiting. Its share of the time is not what removing it would save."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from perfkit_core import grouped, intervals, nesting
from perfkit_core.advice.evidence.transfers import in_steps, waiting_ns
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate
from perfkit_core.advice.rules.phrases import part_of_step
from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.language import say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.schema import COMMUNICATION, DEVICE_WORK, OPERATOR, RUNTIME, SYNC
from perfkit_core.trace import BoolArray, IntArray, Trace

_CLOCK_NS: Final = 1_000
"""A shorter call may have been rounded to nothing: clocks of some recordings tick so."""
_LONG: Final = 10
"""A call that takes so many times the shortest one is long."""
_BLOCKED: Final = 0.5
"""An operator that spends so much of its own time in calls of the device's runtime waits there."""


def waiting_operator(facts: Facts) -> list[Candidate]:
    """Rule 9: operators with calls that take more than a hundred times as long as others, while a device works."""
    facts.need_device()
    groups = _with_long_calls(facts)
    candidates = [_candidate(facts, calls, shortest_ns) for calls, shortest_ns in groups if _waits(facts, calls)]
    return sorted(candidates, key=lambda one: -int(one.evidence["call_ns"]))


def _with_long_calls(facts: Facts) -> list[tuple[IntArray, int]]:
    """Of each operator that takes very differently long: rows of its long calls, and the time of its shortest one."""
    trace, limits = facts.trace, facts.thresholds
    rows = np.flatnonzero(trace.host & trace.rows("kind", OPERATOR) & in_steps(facts))
    own, names = own_ns(trace)[rows], trace.codes("name")
    code, first = grouped.by_appearance(names.codes[rows].astype(np.int64), len(names.values) + 1)
    shortest, longest = grouped.extremes(code, len(first), own)
    least = np.maximum(shortest, _CLOCK_NS)
    long = own > _LONG * least[code]
    total = grouped.sums(code, len(first), np.where(long, own, 0))
    found = (longest > limits.waiting_ratio * least) & (total > _least_ns(facts))
    return [(rows[(code == one) & long], int(shortest[one])) for one in np.flatnonzero(found)]


def own_ns(trace: Trace) -> IntArray:
    """Of each operator its time less that of operators inside it; calls of the device runtime are its own. Shape
    (rows,), 0 for other events."""
    operator = trace.host & trace.rows("kind", OPERATOR, COMMUNICATION)
    nearest = nesting.nearest_on_path(trace.ints("parent"), operator)
    rows = np.flatnonzero(trace.host & (nearest >= 0))
    total = np.zeros(len(trace), np.int64)
    np.add.at(total, nearest[rows], np.maximum(trace.ints("self_ns")[rows], 0))
    return total


def _least_ns(facts: Facts) -> float:
    return facts.thresholds.waiting_share * facts.step_ns * max(len(facts.steps), 1)


def _waits(facts: Facts, calls: IntArray) -> bool:
    """Whether a device works during the calls, and whether they spend their time in its runtime, where that was
    recorded: what computes on the host beside a busy device does not wait."""
    trace = facts.trace
    if _overlap(trace, calls) < facts.thresholds.waiting_overlap:
        return False
    runtime = trace.host & trace.rows("kind", RUNTIME, SYNC)
    if not runtime.any():
        return True
    blocked = int(trace.ints("dur_ns")[runtime & _inside(trace, calls)].sum())
    return blocked >= _BLOCKED * int(own_ns(trace)[calls].sum())


def _overlap(trace: Trace, calls: IntArray) -> float:
    """Share of the calls in which a device does what others gave it."""
    covered = 0
    for own, work in _by_rank(trace, calls, _work_of_others(trace, calls)):
        busy = intervals.union_of(work, trace.ints("start_ns"), trace.end_ns)
        covered += int(covered_ns(busy, trace.ints("start_ns")[own], trace.end_ns[own]).sum())
    return covered / max(int(trace.ints("dur_ns")[calls].sum()), 1)


def _by_rank(trace: Trace, *rows: IntArray) -> Iterator[tuple[IntArray, ...]]:
    """The rows of each rank: every one has a clock of its own."""
    ranks = [trace.ints("rank")[some] for some in rows]
    for one in np.unique(ranks[0]):
        yield tuple(some[of == one] for some, of in zip(rows, ranks, strict=True))


def _work_of_others(trace: Trace, calls: IntArray) -> IntArray:
    """Rows of the device work that these calls did not launch: whoever waits for his own copy is slow himself."""
    launched_by = trace.ints("launched_by")
    own = (launched_by >= 0) & _inside(trace, calls)[launched_by]
    return np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & ~trace.host & ~own)


def _candidate(facts: Facts, calls: IntArray, shortest: int) -> Candidate:
    trace = facts.trace
    names = trace.codes("name")
    name = names.values[names.codes[calls[0]]]
    own = own_ns(trace)[calls]
    inside = _inside(trace, calls)
    waited = int(waiting_ns(facts)[inside].sum())
    cause, work = _awaited(facts, inside, calls)
    return Candidate(
        say(
            "{name} takes {part}, but waits {cause}: to make it faster saves little, what it waits for counts",
            name=name, part=part_of_step(facts, facts.per_step(int(own.sum()))), cause=cause,
        ),
        evidence={
            "operator": name, "long_calls": len(calls), "longest_ns": int(own.max()), "shortest_ns": shortest,
            "call_ns": round(facts.per_step(int(own.sum()))), "waiting_ns": round(facts.per_step(waited)),
            "device_overlap_ratio": round(_overlap(trace, calls), 3), "waits_for": work,
            "step_ns": facts.step_ns,
        },
        rows=calls,
        method="none",
        preconditions=(
            say("some calls take over a hundred times as long as others"),
            say("a device does other work meanwhile"),
        ),
        risks=(say("its share of the time is not a saving"),),
        fill={"operator": name, "work": work},
    )  # fmt: skip


def _inside(trace: Trace, calls: IntArray) -> BoolArray:
    """The calls and all host events in them, shape (rows,)."""
    chosen = np.zeros(len(trace), np.bool_)
    chosen[calls] = True
    return trace.host & (chosen | nesting.lies_in(trace.ints("parent"), chosen))


def _awaited(facts: Facts, inside: BoolArray, calls: IntArray) -> tuple[str, str]:
    """Why it waits, in words, and the name of the work that takes most of the time meanwhile."""
    trace = facts.trace
    names = trace.codes("name")
    syncs = np.flatnonzero(inside & trace.rows("kind", SYNC))
    work = _most_work(trace, calls)
    if len(syncs):
        longest = syncs[np.argmax(trace.ints("dur_ns")[syncs])]
        return say(
            "in {name} for the device ({work})",
            name=names.values[names.codes[longest]],
            work=_short(work),
        ), work
    return say("while the device works ({work}): for room in its queue, or for a copy", work=_short(work)), work


def _short(name: str) -> str:
    """A kernel's name without its types."""
    return re.split(r"[<(]", name.removeprefix("void "))[0].strip() or name


def _most_work(trace: Trace, calls: IntArray) -> str:
    """Name of the device work of others that covers most of the calls."""
    names = trace.codes("name")
    start, end = trace.ints("start_ns"), trace.end_ns
    total = np.zeros(len(names.values), np.int64)
    for own, work in _by_rank(trace, calls, _work_of_others(trace, calls)):
        covered = covered_ns(intervals.union_of(own, start, end), start[work], end[work])
        np.add.at(total, names.codes[work], covered)
    return names.values[int(total.argmax())]


RULES: Final = (Rule("waiting-operator", 9, 1, "This operator waits: do not blame it", waiting_operator),)
