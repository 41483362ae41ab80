"""Rule 15, launch-bound: the device waits for the host, which launches many short kernels.
Detected: in the account of the device, it waits for the host while this calls operators and launches for more than
``launch_share`` of the step. Data loading, waits, copies, allocations and one-time work do not count.
Predicted: the step time if one call launches all kernels of a step, as with a captured graph or compiled code. Python
code between launches takes less time (``_BETWEEN``). Calls that copy, synchronise or communicate stay unchanged, and so
do updates of parameters that rule 17 claims: a compiled model does not contain them."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.advice.decode_steps import is_served
from perfkit_core.advice.device_account import device_account
from perfkit_core.advice.operators import matching, operators, within
from perfkit_core.advice.rule_input import NO_ROWS, Candidate, NotEvaluableError, RuleInput, assume
from perfkit_core.advice.rules import per_tensor_optimizer
from perfkit_core.advice.rules.device_malloc import ALLOCATES
from perfkit_core.base.algorithms import arrays, groupby, intervals, nesting
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.base.language.messages import message, plural
from perfkit_core.causes.segments import HOST
from perfkit_core.replay.transforms import Batch, Quantity, Shorten
from perfkit_core.trace.assembly.first_launches import ONLY_COLD
from perfkit_core.trace.model.schema import COMMUNICATION, DATALOADER, KERNEL, MEMCPY, OPERATOR, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace

_KERNEL_NS: Final = Quantity(
    300, 2_500, 6_000,
    message("estimate per kernel: captured graph (best), 2 kernels per compiled launch (likely), plain launch (worst)"),
)  # fmt: skip
_BETWEEN: Final = Quantity(
    0.0, 0.3, 0.8, message("estimate: Python between launches is skipped (best) or runs nearly as before (worst)")
)
_GAP_NS: Final = 1_000
_ONE_TIME: Final = 20.0
"""A call does one-time work if its time per kernel exceeds this multiple of the median."""
_RECURS: Final = 3
"""With at least this many steps, one-time events do not affect the median step."""


def find(facts: RuleInput) -> list[Candidate]:
    facts.need_device()
    cold = next((finding.text for finding in facts.trace.quality if finding.code == ONLY_COLD), None)
    if cold is not None:
        raise NotEvaluableError(cold)
    # rule 50 gives this advice on an inference server
    return [] if is_served(facts) else of_launches(facts)


def of_launches(facts: RuleInput) -> list[Candidate]:
    trace, dur = facts.trace, facts.trace.ints("dur_ns")
    kernels = np.flatnonzero(trace.rows("kind", KERNEL) & (trace.ints("launched_by") >= 0) & facts.in_steps)
    if not len(kernels):
        return []
    account, kernel_ns = device_account(facts), float(np.median(dur[kernels]))
    rows, once, count = _launches(facts, kernels)
    if account is None or count < 1:
        return []
    group = groupby.distinct([trace.ints("rank")[rows], trace.ints("step")[rows]], len(rows))[0]
    between = {rank: _between(trace, rows, group, rank) for rank in facts.ranks}
    calls = account.held(within(trace, rows) & ~matching(trace, "name", ALLOCATES.search))
    python = intervals.intersect(account.times(HOST), between[facts.rank])
    launching_ns = account.within(intervals.union(*(np.concatenate(pair) for pair in zip(calls, python, strict=True))))
    if not facts.exceeds(account.within(calls), facts.thresholds.launch_share):
        return []
    device = round(facts.busy_ns)
    # the predicted launches of a step never take longer than the recorded launches
    now = facts.median_total(rows, dur[rows])
    low, mid, high = (min(count * ns, now) for ns in (_KERNEL_NS.low, _KERNEL_NS.mid, _KERNEL_NS.high))
    cost = Quantity(low, mid, high, _KERNEL_NS.source)
    vetoes = [message("calls that copy to or from the host, synchronise or communicate, which stay unchanged")]
    if len(once):
        vetoes.append(plural(
            "{n:count} call that takes over {times:count} times as long as usual and may not recur in later steps",
            "{n:count} calls that take over {times:count} times as long as usual and may not recur in later steps",
            len(once), times=_ONE_TIME,
        ))  # fmt: skip
    return [Candidate(
        facts.plural(
            "The device waits for {time} while the host launches {kernels:count} kernel, which keeps "
            "the device busy for {device:ns}; the median kernel takes {kernel:ns}.",
            "The device waits for {time} while the host launches {kernels:count} kernels, which keep "
            "the device busy for {device:ns}; the median kernel takes {kernel:ns}.",
            count, time=facts.of_step(launching_ns), kernels=count, device=device, kernel=kernel_ns,
        ),
        evidence={
            "launching_ns": round(launching_ns),
            "device_busy_ns": device, "kernels": round(count), "kernel_ns": round(kernel_ns),
            "step_ns": facts.step_ns,
        },
        rows=rows,
        transforms=(Batch(rows, cost, _GAP_NS, group), Shorten(between, _BETWEEN)),
        ceiling_ns=facts.step_ns - device,
        share_ns=round(launching_ns),
        preconditions=(
            message("while the device is idle, the call that launches its next work has not returned"),
        ),
        vetoes=tuple(vetoes),
        assumptions=assume(launches_ns=cost, between_factor=_BETWEEN),
        risks=(
            message("Every new input shape causes another compilation or capture."),
            message("A captured graph keeps its memory allocated."),
        ),
        conflicts=("elementwise-chain",),  # a compiler also fuses chains of elementwise kernels
    )]  # fmt: skip


def _launches(facts: RuleInput, kernels: arrays.IntArray) -> tuple[arrays.IntArray, arrays.IntArray, float]:
    """Find the outermost host events that launch kernels and can be part of a captured graph. Return the rows of events
    with a usual duration, the rows of much longer events, and the number of kernels per step."""
    trace = facts.trace
    roots = nesting.outermost(trace.ints("parent"), operators(trace) | trace.rows("kind", RUNTIME))
    updates = within(trace, np.concatenate([NO_ROWS, *(claimed.rows for claimed in _of_optimizer(facts))]))
    # captured graphs contain no calls that copy from or to the host, communicate or synchronise
    crossing = trace.rows("kind", MEMCPY) & (trace.ints("launched_by") >= 0)
    crossing &= ~matching(trace, "copy_kind", lambda kind: kind.startswith(("DtoD", "PtoP")))
    waiting = np.flatnonzero(trace.host & trace.rows("kind", SYNC, COMMUNICATION))
    stops = roots[np.append(trace.ints("launched_by")[crossing], waiting)]
    waits = np.zeros(len(trace), np.bool_)
    waits[stops[stops >= 0]] = True
    root = roots[trace.ints("launched_by")[kernels]]
    free = ~waits[root] & ~updates[root] & (facts.replay.first[root] >= 0)
    rows, launched = np.unique(root[free], return_counts=True)
    did_more = np.zeros(len(rows), np.bool_)
    if len(rows) and facts.mine.sum() < _RECURS:
        each_ns = trace.ints("dur_ns")[rows] / launched
        did_more = each_ns > _ONE_TIME * np.median(each_ns)
    return rows[~did_more], rows[did_more], facts.median_total(kernels[free])


def _of_optimizer(facts: RuleInput) -> list[Candidate]:
    try:
        return per_tensor_optimizer.find(facts)
    except NotEvaluableError:
        return []


def _between(trace: Trace, launches: arrays.IntArray, group: arrays.IntArray, rank: int) -> Intervals:
    """Return the intervals in which no thread of the rank does recorded work, from the first to the last launch of each
    step. ``group`` has the same number for all launches in one step of one rank."""
    start, end = trace.ints("start_ns"), trace.end_ns
    here = trace.ints("rank") == rank
    order = np.lexsort((start[launches], group))
    order = order[here[launches[order]]]
    rows, group = launches[order], group[order]
    at = np.flatnonzero(np.diff(group, prepend=-1))
    hull = intervals.union(start[rows[at]], np.maximum.reduceat(end[rows], at) if len(at) else end[rows])
    work = np.flatnonzero(here & trace.host & trace.rows("kind", OPERATOR, RUNTIME, SYNC, COMMUNICATION, DATALOADER))
    return intervals.subtract(hull, intervals.union_of(work, start, end))
