"""The windows of time that are compared: steps, or whole recordings if a run has no steps.

A step is compared on one of two clocks, the same for both runs:

- ``host``: the step lasts as long as its range on the host.
- ``device``: the host of a run only enqueues work, which devices finish later
  (:mod:`perfkit_core.views.steps.device_windows`).

Work that runs on a device in a window on the device's clock was launched by the step of this window. The first of
several steps is left out, because its begin is unknown. So are steps in which devices mainly finish work of steps
that were not recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, FloatArray, IntArray
from perfkit_core.base.language.messages import Message, message
from perfkit_core.trace.assembly.lost_records import lost_records
from perfkit_core.trace.assembly.server_steps import without_steps
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.schema import DEVICE_WORK, NESTED_KINDS, PYTHON, RUNTIME, STEP, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select, tables
from perfkit_core.views.steps import device_windows, step_rows
from perfkit_core.views.steps.activity import activities

DEVICE_CLOCK: Final = "steps-end-on-device"
"""Code of the finding of runs that are compared on the clock of the device."""
LEFT_OUT: Final = "steps-left-out"
_NOTABLE: Final = 0.01
"""Share of a step. A host only enqueues if its steps end earlier than their device work by more than this share. A step
holds work of other steps if this work takes more than this share of it."""
_FILLED: Final = 0.1
"""The recording may have ended in a single step only if something begins in the last share of the other runs' steps."""
_FEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class Windows:
    """Time windows [start, end) of one rank each, usually its steps. The arrays have the shape (windows,)."""

    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray
    typical_ns: int  # The median step, or the mean duration of a recording without steps.
    row: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """The event rows of the steps, none for whole recordings."""
    calls: int = 0
    """The number of calls of a kernel that the windows of whole recordings hold, 0 if they are not cut at calls."""

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def dur_ns(self) -> IntArray:
        return self.end_ns - self.start_ns

    @property
    def count(self) -> int:
        """The number of units of work to which times and calls refer: steps, recordings of a rank, or calls."""
        return self.calls or len(self)

    @property
    def mean_ns(self) -> int:
        return int(tables.rounded_division(self.dur_ns.sum(), self.count))

    def members(self, trace: Trace) -> IntArray:
        """Return the rows of the events of the windows, in ascending order: the events of the steps (device work
        belongs to the step that launched it), or the events that start in the windows of whole recordings."""
        rank = trace.ints("rank")
        if len(self.row):
            return np.flatnonzero(step_rows.position(trace, self.row, rank, trace.ints("step")) >= 0)
        return self.starting(rank, trace.ints("start_ns"))

    def starting(self, rank: IntArray, time_ns: IntArray) -> IntArray:
        """Return the indices of the events that start in a window of their rank, in ascending order."""
        rows = [np.empty(0, np.int64)]
        for number in np.unique(self.rank).tolist():
            mine = self.rank == number
            begun = np.searchsorted(np.sort(self.start_ns[mine]), time_ns, side="right")
            ended = np.searchsorted(np.sort(self.end_ns[mine]), time_ns, side="right")
            rows.append(np.flatnonzero((rank == number) & (begun > ended)))
        return np.sort(np.concatenate(rows))


def step_windows(trace: Trace) -> Windows:
    """Return the windows of all steps of a rank, in the order of the events."""
    rows = step_rows.step_rows(trace)
    rank, start, end = trace.ints("rank")[rows], trace.ints("start_ns")[rows], trace.end_ns[rows]
    if on_device_clock(trace) and len(rows):
        start, end = device_windows.device_windows(trace, rows)
    return Windows(rank, start, end, median_ns(end - start), rows)


def median_ns(dur_ns: IntArray) -> int:
    """Return the median, truncated to ns: for an even number of durations, the mean of the two in the middle."""
    ascending, count = np.sort(dur_ns), len(dur_ns)
    return (int(ascending[(count - 1) // 2]) + int(ascending[count // 2])) // 2 if count else 0


def middle_steps(trace: Trace) -> Windows:
    """Return the half of the steps whose durations are nearest to the median, at least two."""
    windows = step_windows(trace)
    dur, count = windows.dur_ns, len(windows)
    order = np.argsort(dur, kind="stable")
    middle = order[(count - 1) // 2 : count // 2 + 1]
    distance = np.abs(len(middle) * dur[order] - dur[middle].sum())
    at = np.sort(order[np.argsort(distance, kind="stable")][: max(_FEWEST, (count + 1) // 2)])
    rows = step_rows.step_rows(trace)[at]
    return replace(windows, rank=windows.rank[at], start_ns=windows.start_ns[at], end_ns=windows.end_ns[at], row=rows)


def whole_run(trace: Trace) -> Windows:
    """Return one window for each rank, from its first to its last event."""
    activity = activities(trace)
    rows = np.flatnonzero(activity.host | activity.compute | activity.communication | activity.copy)
    code, count = select.rank_codes(trace)
    first, _ = groupby.extremes(code[rows], count, trace.ints("start_ns")[rows])
    _, last = groupby.extremes(code[rows], count, trace.end_ns[rows])
    with_time = np.flatnonzero(last > first)
    windows = Windows(select.ranks(trace)[with_time], first[with_time], last[with_time], 0)
    return replace(windows, typical_ns=windows.mean_ns)


def on_device_clock(trace: Trace) -> bool:
    return any(finding.code == DEVICE_CLOCK for finding in trace.quality)


def on_one_clock(runs: Sequence[Sequence[Trace]]) -> list[list[Trace]]:
    """Return the captures of runs without steps that cannot be compared, and with a finding of a device's clock."""
    if any(on_device_clock(trace) for run in runs for trace in run):
        return [list(run) for run in runs]
    every = [trace for run in runs for trace in run]
    complete = [[_without_cut_step(trace, [other for other in every if other is not trace]) for trace in run]
                for run in runs]  # fmt: skip
    every = [trace for run in complete for trace in run]
    device = any(map(_only_enqueues, every)) and all(len(step_rows.step_rows(trace)) for trace in every)
    compared = [[_compared(trace, device) for trace in run] for run in complete]
    before, after = (sum(len(step_rows.step_rows(trace)) for run in each for trace in run) for each in (runs, compared))
    return compared if after == before else on_one_clock(compared)  # another run may be cut without those steps


def _only_enqueues(trace: Trace) -> bool:
    """Return whether most steps end on the host before the device work that they launched."""
    late = device_windows.late_ratio(trace, step_rows.step_rows(trace))
    return bool(len(late) and np.mean(late > _NOTABLE) > 1 / 2)


def _compared(trace: Trace, device: bool) -> Trace:
    """Return the trace without the steps that cannot be compared, and with findings that say so."""
    cut = message("the recording ended before its device work did")
    if not device:
        earlier = message("devices finish earlier work in it")
        trace = _left_out(trace, _cut_off(trace), cut, keep=True)
        return _left_out(trace, _with_other_work(trace, step_rows.step_rows(trace)), earlier, keep=True)
    trace = _left_out(trace, _cut_off(trace), cut)
    text = message("the host only enqueues work: a step lasts until the device has finished the work of the step")
    trace = trace.with_findings(Finding(DEVICE_CLOCK, text, note=True))
    rank = trace.ints("rank")[step_rows.step_rows(trace)]
    first = np.append(True, rank[1:] != rank[:-1])[: len(rank)]
    return _left_out(trace, first, message("its start on the device is unknown"), keep=True)


def _left_out(trace: Trace, mask: BoolArray, why: Message, keep: bool = False) -> Trace:
    """Return the trace without the steps in ``mask``, shape (steps,), on all ranks, and with a finding that counts
    them. With ``keep``, the trace is returned unchanged if no step would remain."""
    rows = step_rows.step_rows(trace)
    number = trace.ints("step")[rows]
    mask = np.isin(number, number[mask])
    if not mask.any() or (keep and mask.all()):
        return trace
    text = message("not compared: step {steps:list} ({why})", steps=list(map(str, np.unique(number[mask]))), why=why)
    return without_steps(trace, rows[mask]).with_findings(Finding(LEFT_OUT, text, note=True))


def _idle_at_end(trace: Trace) -> FloatArray:
    """Return the time from the start of the last host event of each step to its end, as a ratio of the step."""
    rows, start = step_rows.step_rows(trace), trace.ints("start_ns")
    work = np.flatnonzero(trace.host & trace.rows("kind", *NESTED_KINDS - {STEP}))
    at = step_rows.position(trace, rows, trace.ints("rank")[work], trace.ints("step")[work])
    latest = np.maximum(groupby.extremes(at, len(rows), start[work])[1], start[rows])
    ratio: FloatArray = (trace.end_ns[rows] - latest) / np.maximum(trace.ints("dur_ns")[rows], 1)
    return ratio


def _names(trace: Trace, row: int) -> Counter[str]:
    """Count the operators and ranges of a step by name."""
    inside = (trace.ints("rank") == trace.ints("rank")[row]) & (trace.ints("step") == trace.ints("step")[row])
    names = trace.codes("name")
    codes = names.codes[trace.host & inside & trace.rows("kind", *NESTED_KINDS - {STEP, PYTHON, RUNTIME, SYNC})]
    return Counter([names.values[code] for code in codes.tolist()])


def _without_cut_step(trace: Trace, others: Sequence[Trace]) -> Trace:
    """Return the trace without a last step in which the recording ended: nothing begins after it, nothing begins near
    its end, and it has fewer operators and ranges than the earlier steps. A single step must have only a part of those
    of a step of ``others``, the other runs."""
    rows, rank = step_rows.step_rows(trace), trace.ints("rank")
    events, idle = trace.host & trace.rows("kind", *NESTED_KINDS), _idle_at_end(trace)
    mask = np.zeros(len(rows), np.bool_)
    for number in np.unique(rank[rows]).tolist():
        *before, last = np.flatnonzero(rank[rows] == number).tolist()
        if trace.ints("start_ns")[events & (rank == number)].max() >= trace.end_ns[rows[last]]:
            continue
        steps = [(trace, int(rows[at]), idle[at]) for at in before] or [
            (other, row, ratio) for other in others if other.meta.framework == trace.meta.framework
            for row, ratio in zip(step_rows.step_rows(other).tolist(), _idle_at_end(other), strict=True)
        ]  # fmt: skip
        longest = max((ratio for *_, ratio in steps), default=1.0)
        if idle[last] > longest + _NOTABLE and (before or longest <= _FILLED):
            names, counts = _names(trace, int(rows[last])), [_names(other, row) for other, row, _ in steps]
            fewer = names.total() < min(count.total() for count in counts)
            mask[last] = fewer if before else any(names < count for count in counts)
    return _left_out(trace, mask, message("the recording ended in it"))


def is_cut_off(trace: Trace) -> bool:
    """Return whether the recording ended before the device work of a compared step."""
    return on_device_clock(trace) and bool(_cut_off(trace).any())


def _cut_off(trace: Trace) -> BoolArray:
    """Return the mask of steps whose device work ends later than the recording, shape (steps,): the work of their last
    launch, or of one at the end of the recording, was not recorded. If a graph has the last work of a stream, but not
    the last launch, more of its nodes may have followed."""
    rows, records = step_rows.step_rows(trace), lost_records(trace)
    lost = np.concatenate([records.lost, records.cut_off, records.replays.incomplete])
    if not len(lost):
        return np.zeros(len(rows), np.bool_)
    rank, step, launched_by = trace.ints("rank"), trace.ints("step"), trace.ints("launched_by")
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (launched_by != NO_ROW))
    launch, streams = launched_by[work], (rank[work], trace.codes("device").codes[work], trace.ints("stream")[work])
    launches, works = np.unique(launch, return_counts=True)
    of_steps, of_streams = (
        step_rows.position(trace, rows, rank[launches], step[launches]),
        groupby.distinct(streams, len(work))[0],
    )
    last = groupby.extremes(of_steps, len(rows), launches)[1]
    at = step_rows.position(trace, rows, rank[lost], step[lost])
    cut = [records.cut_off, lost[(at >= 0) & (lost >= np.append(last, 0)[at])]]
    ends = np.unique(groupby.extremes(of_streams, int(of_streams.max(initial=-1)) + 1, launch)[1])
    ends = ends[works[np.searchsorted(launches, ends)] > 1]
    cut += [
        ends[(rank[ends] == number) & (ends < lost[rank[lost] == number].max())] for number in np.unique(rank[lost])
    ]
    late = np.concatenate(cut)
    at = step_rows.position(trace, rows, rank[late], step[late])
    mask = np.zeros(len(rows), np.bool_)
    mask[at[at >= 0]] = True
    return mask


def _with_other_work(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of steps in which devices mainly finish work that no step launched, shape (rows,)."""
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (trace.ints("step") < 0))
    start, end, rank = trace.ints("start_ns"), trace.end_ns, trace.ints("rank")
    held = np.zeros(len(rows), np.int64)
    for number in np.unique(rank[rows]).tolist():
        mine, of_rank = np.flatnonzero(rank[rows] == number), work[rank[work] == number]
        if len(of_rank):
            busy = intervals.union(start[of_rank], end[of_rank])
            held[mine] = intervals.covered_ns(busy, start[rows[mine]], end[rows[mine]])
    mask: BoolArray = held > _NOTABLE * trace.ints("dur_ns")[rows]
    return mask
