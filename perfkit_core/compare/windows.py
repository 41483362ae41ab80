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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.trace.assembly.server_steps import without_steps
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.schema import DEVICE_WORK
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
    """Return the runs, each with one capture or more, without steps that cannot be compared, and with a finding of
    the clock if it is that of the device."""
    every = [trace for run in runs for trace in run]
    if any(on_device_clock(trace) for trace in every):
        return [list(run) for run in runs]
    device = any(map(_only_enqueues, every)) and all(len(step_rows.step_rows(trace)) for trace in every)
    return [[_compared(trace, device) for trace in run] for run in runs]


def _only_enqueues(trace: Trace) -> bool:
    """Return whether most steps end on the host before the device work that they launched."""
    late = device_windows.late_ratio(trace, step_rows.step_rows(trace))
    return bool(len(late) and np.mean(late > _NOTABLE) > 1 / 2)


def _compared(trace: Trace, device: bool) -> Trace:
    """Return the trace without the steps that cannot be compared, and with findings that say so."""
    if device:
        text = message("the host only enqueues work: a step lasts until the device has finished the work of the step")
        trace = trace.with_findings(Finding(DEVICE_CLOCK, text, note=True))
    rows = step_rows.step_rows(trace)
    if len(rows) < _FEWEST:
        return trace
    number, rank = trace.ints("step")[rows], trace.ints("rank")[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = rank[1:] != rank[:-1]
    excluded = first if device else _with_other_work(trace, rows)
    excluded = np.isin(number, number[excluded])  # on all ranks
    if not excluded.any() or excluded.all():
        return trace
    steps = np.unique(number[excluded]).tolist()
    begins, finishes = message("its begin on the device is unknown"), message("devices finish earlier work in it")
    why = begins if device else finishes
    text = message("not compared: step {steps:list} ({why})", steps=list(map(str, steps)), why=why)
    return without_steps(trace, rows[excluded]).with_findings(Finding(LEFT_OUT, text, note=True))


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
