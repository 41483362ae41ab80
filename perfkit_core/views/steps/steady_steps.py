"""The steps of a recording and the windows that they cover, recorded or inferred, and what is set apart from them.

- Recorded steps, and ranges of an inference server, are steps as recorded. Otherwise steps are inferred
  (:mod:`perfkit_core.views.steps.inferred_periods`) and numbered from 0.
- Set apart are steps that say nothing about the others: the warm-up, steps with compilation or a graph capture, steps
  that the recording cut, and steps without work. The time outside of all steps is set apart, too.
- A step belongs to the warm-up if it precedes all steady steps, takes at least :data:`LONGER` longer than their median,
  and one-off work causes a quarter of that, or else if it takes twice as long as nearly all of them.
- The cadence of a device is the time between the first work that a step launched and the first work that the next step
  launched. If it is longer than the steps on the host, the device determines how long a step takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import Message, mark
from perfkit_core.trace.assembly.server_steps import serving_steps
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.serving_step import CAPTURE as SERVER_CAPTURE
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import ranks
from perfkit_core.views.steps import one_off_work
from perfkit_core.views.steps.inferred_periods import Periods, inferred_periods
from perfkit_core.views.steps.step_rows import cut_off_rows, step_rows

RECORDED: Final = "recorded"
SERVER: Final = "server"
INFERRED: Final = "inferred"
NONE: Final = "none"
"""Sources of steps."""

WARM_UP: Final = "warm_up"
COMPILATION: Final = "compilation"
CAPTURE: Final = "capture"
BENCHMARK: Final = "benchmark"
CUT: Final = "cut"
EMPTY: Final = "empty"
WITHOUT_UPDATE: Final = "without_update"
BEFORE: Final = "before"
AFTER: Final = "after"
REASONS: Final = {
    WARM_UP: mark("warm-up"),
    COMPILATION: mark("compilation"),
    CAPTURE: mark("graph capture"),
    BENCHMARK: mark("harness of a benchmark"),
    CUT: mark("cut off by the recording"),
    EMPTY: mark("without work"),
    WITHOUT_UPDATE: mark("batches without an update of parameters, such as a validation"),
    BEFORE: mark("before the first step"),
    AFTER: mark("after the last step"),
}
"""Why a time is set apart, and how a report says it."""
LONGER: Final = 0.25
"""A step of the warm-up takes at least this share longer than the steady steps."""
_CAUSED: Final = 0.25
_NAMED: Final = 0.1
"""A cause is named if it takes at least this share of a time that is set apart."""
_LACKS: Final = 0.05
"""The recording cut its first step if this share of the other steps precedes what the first step begins with."""
_LEAST_OUTSIDE: Final = 0.5
"""Times outside of the steps that are shorter than this share of a step are not reported."""
DEVICE_BOUND: Final = 1.02
"""The device determines the length of the steps if its cadence exceeds the host's steps by this factor."""
IN_ORDER: Final = 0.9
"""Minimum share of successive steps whose device work begins in their order; else requests overlap, and the time from
the work of one step to that of the next is not the time of a step."""


@dataclass(frozen=True, slots=True)
class SetApart:
    """A time [begin_ns, end_ns) that says nothing about steady steps. ``step``: its number, -1 outside of steps.
    ``cause``: the name of the host events that take most of it, ``""`` if unknown; ``cause_ns``: their time."""

    rank: int
    begin_ns: int
    end_ns: int
    reason: str  # a key of REASONS
    step: int = -1
    cause: str = ""
    cause_ns: int = 0


@dataclass(frozen=True, slots=True)
class StepSource:
    """Where the steps of a rank come from. ``basis``: the range or work that marks an inferred step. ``why``: the
    reason why there are no steps."""

    rank: int
    kind: str
    basis: str | Message = ""
    why: Message | None = None
    first_row: int = -1  # a row of the thread that runs the steps


@dataclass(frozen=True, slots=True)
class SteadySteps:
    """The steps of all ranks, sorted by rank and begin. Arrays have shape (steps,)."""

    rank: IntArray
    number: IntArray
    begin_ns: IntArray
    end_ns: IntArray
    steady: BoolArray  # False: the step is set apart
    device_cadence_ns: IntArray  # -1: unknown
    set_apart: tuple[SetApart, ...]
    sources: tuple[StepSource, ...]

    @property
    def host_ns(self) -> IntArray:
        return self.end_ns - self.begin_ns

    def length_ns(self) -> IntArray:
        """Return the length of each step: the device's cadence on a rank whose device determines it, else the time on
        the host."""
        length = self.host_ns.copy()
        for rank in np.unique(self.rank).tolist():
            of_rank = (self.rank == rank) & self.steady
            timed = of_rank & (self.device_cadence_ns >= 0)
            device_ns, host_ns = (int(times[timed].sum()) for times in (self.device_cadence_ns, self.host_ns))
            if 2 * timed.sum() > of_rank.sum() and device_ns > DEVICE_BOUND * host_ns:
                length[timed] = self.device_cadence_ns[timed]
        return length


@once
def steady_steps(trace: Trace) -> SteadySteps:
    """Return the steps of all ranks of a trace, and what is set apart."""
    windows: list[tuple[IntArray, ...]] = [tuple(np.empty(0, np.int64) for _ in range(6))]
    set_apart: list[SetApart] = []
    sources: list[StepSource] = []
    recorded = step_rows(trace)
    described = dict(zip(*(values for values in serving_steps(trace)), strict=True))
    for rank in ranks(trace).tolist():
        rows = recorded[trace.ints("rank")[recorded] == rank]
        periods: Periods | None = None
        if len(rows):
            begin, end, number = trace.ints("start_ns")[rows], trace.end_ns[rows], trace.ints("step")[rows]
            served = int(rows[0]) in described
            sources.append(StepSource(rank, SERVER if served else RECORDED, first_row=int(rows[0])))
        else:
            found = inferred_periods(trace, rank)
            if isinstance(found, Message):
                sources.append(StepSource(rank, NONE, why=found))
                continue
            periods = found
            begin, end, number = periods.begin_ns, periods.end_ns, periods.number
            sources.append(StepSource(rank, INFERRED, periods.basis, first_row=periods.first_row))
        reasons = _reasons(trace, rank, begin, end)
        for at, row in enumerate(rows.tolist()):
            if row in described and described[row].kind == SERVER_CAPTURE:
                reasons[at] = CAPTURE
        if periods is not None:
            windows_ns = zip(begin.tolist(), end.tolist(), strict=True)
            reasons |= {at: BENCHMARK for at, window in enumerate(windows_ns) if window in periods.benchmark_ns}
            if not periods.opened and 0 not in reasons:
                _cut_first(trace, rank, begin, end, reasons)
        set_apart += [_apart(trace, rank, int(begin[at]), int(end[at]), reason, int(number[at]))
                      for at, reason in sorted(reasons.items())]  # fmt: skip
        steady = np.array([at not in reasons for at in range(len(begin))], np.bool_)
        set_apart += _outside(trace, rank, begin, end, periods)
        cadence = _device_cadence(trace, rank, begin, end)
        windows.append((np.full(len(begin), rank), number, begin, end, steady.astype(np.int64), cadence))
    rank_of, number, begin, end, is_steady, cadence = (np.concatenate(cells) for cells in zip(*windows, strict=True))
    return SteadySteps(
        rank_of, number, begin, end, is_steady.astype(np.bool_), cadence, tuple(set_apart), tuple(sources)
    )


def _reasons(trace: Trace, rank: int, begin: IntArray, end: IntArray) -> dict[int, str]:
    """Return the reason why a step is set apart by its index."""
    reasons: dict[int, str] = {}
    work = one_off_work.one_off_work(trace, rank)
    for category, reason in ((one_off_work.CAPTURE, CAPTURE), (one_off_work.COMPILATION, COMPILATION),
                             (one_off_work.WARM_UP, WARM_UP)):  # fmt: skip
        covered = intervals.covered_ns(work.spans[category], begin, end)
        reasons |= dict.fromkeys(np.flatnonzero(covered > LONGER * (end - begin)).tolist(), reason)
    reasons |= dict.fromkeys(np.flatnonzero(~_works(trace, rank, begin, end)).tolist(), EMPTY)
    one_off = intervals.covered_ns(work.total(), begin, end)
    dur = end - begin
    later = np.array([at for at in range(len(dur)) if at not in reasons], np.int64)
    while len(later) > 2:
        first, later = int(later[0]), later[1:]
        usual = float(np.median(dur[later]))
        excess = dur[first] - usual
        caused = one_off[first] - float(np.median(one_off[later]))
        slow = dur[first] > 2 * usual and dur[first] > 2 * np.quantile(dur[later], 0.9)
        if excess < LONGER * usual or not (caused >= _CAUSED * excess or slow):
            break
        reasons[first] = WARM_UP
    return reasons


def _works(trace: Trace, rank: int, begin: IntArray, end: IntArray) -> BoolArray:
    """Return which steps have an operator, a runtime call or a range that starts in them."""
    kinds = schema.NESTED_KINDS - {schema.STEP, schema.DATALOADER}
    work = trace.ints("start_ns")[trace.host & (trace.ints("rank") == rank) & trace.rows("kind", *kinds)]
    works: BoolArray = np.searchsorted(work, end) > np.searchsorted(work, begin)
    return works


def _cut_first(trace: Trace, rank: int, begin: IntArray, end: IntArray, reasons: dict[int, str]) -> None:
    """Set the first inferred step apart if the recording began in it: it has fewer operators than usual, or begins with
    an event that other steps have later, after time without one such as a batch that plain Python prepares."""
    of_rank, start = trace.host & (trace.ints("rank") == rank), trace.ints("start_ns")
    operators = start[of_rank & trace.operators]
    count = np.searchsorted(operators, end) - np.searchsorted(operators, begin)
    kinds = schema.NESTED_KINDS - {schema.RUNTIME, schema.SYNC, schema.PYTHON}
    rows = np.flatnonzero(of_rank & trace.rows("kind", *kinds))
    names = trace.codes("name").codes[rows]
    alike = np.append(start[rows[names == names[0]]], np.iinfo(np.int64).max)
    follows = alike[np.searchsorted(alike, begin[1:])]
    usual, lacks = end[1:] - begin[1:], np.where(follows < end[1:], follows - begin[1:], 0)
    if len(usual) and (count[0] < (1 - LONGER) * np.median(count[1:]) or np.median(lacks) > _LACKS * np.median(usual)):
        reasons[0] = CUT


def _apart(trace: Trace, rank: int, begin: int, end: int, reason: str, step: int = -1) -> SetApart:
    """Return a time that is set apart, with the one-off work in it, or else the longest host event."""
    cause, cause_ns = one_off_work.one_off_work(trace, rank).longest(begin, end)
    if cause_ns < _NAMED * (end - begin):
        host = trace.host & (trace.ints("rank") == rank) & trace.rows("kind", *schema.NESTED_KINDS - {schema.STEP})
        rows = np.flatnonzero(host & (trace.ints("start_ns") >= begin) & (trace.end_ns <= end))
        names, dur_ns = trace.codes("name"), trace.ints("dur_ns")
        if len(rows):
            longest = int(rows[dur_ns[rows].argmax()])
            cause, cause_ns = names.values[names.codes[longest]], int(dur_ns[longest])
    if cause_ns < _NAMED * (end - begin):
        return SetApart(rank, begin, end, reason, step)
    return SetApart(rank, begin, end, reason, step, cause, min(cause_ns, end - begin))  # nested calls count twice


def _outside(trace: Trace, rank: int, begin: IntArray, end: IntArray, periods: Periods | None) -> Iterator[SetApart]:
    """Yield what lies outside of the steps of a rank."""
    cut = np.flatnonzero(cut_off_rows(trace) & (trace.ints("rank") == rank))
    for row in cut.tolist():
        number = int(trace.ints("step")[row])
        yield SetApart(rank, int(trace.ints("start_ns")[row]), int(trace.end_ns[row]), CUT, number)
    if periods is not None:
        for first, last in periods.without_update:
            yield _apart(trace, rank, first, last, WITHOUT_UPDATE)
        for first, last in set(periods.benchmark_ns) - set(zip(begin.tolist(), end.tolist(), strict=True)):
            yield _apart(trace, rank, first, last, BENCHMARK)
    host = np.flatnonzero(trace.host & (trace.ints("rank") == rank) & trace.rows("kind", *schema.NESTED_KINDS))
    least = _LEAST_OUTSIDE * float(np.median(end - begin))
    first, last = int(trace.ints("start_ns")[host].min()), int(trace.end_ns[host].max())
    others = (*periods.benchmark_ns, *periods.without_update) if periods is not None else ()
    before = min([int(begin[0]), *(span[0] for span in others)])
    if before - first > least:
        yield _apart(trace, rank, first, before, BEFORE)
    if last - end.max() > least and not len(cut):
        yield _apart(trace, rank, int(end.max()), last, AFTER)


def _device_cadence(trace: Trace, rank: int, begin: IntArray, end: IntArray) -> IntArray:
    """Return the time from the first device work that each step launched to the first that the next one launched."""
    cadence = np.full(len(begin), -1, np.int64)
    launched_by = trace.ints("launched_by")
    work = np.flatnonzero(
        (launched_by != NO_ROW) & trace.rows("kind", *schema.DEVICE_WORK) & (trace.ints("rank") == rank)
    )
    launch = trace.ints("start_ns")[launched_by[work]]
    step = np.searchsorted(begin, launch, side="right") - 1
    step = np.where((step >= 0) & (launch < end[step]), step, -1)
    first, _ = groupby.extremes(step, len(begin), trace.ints("start_ns")[work])
    launched = first < np.iinfo(np.int64).max
    follows = begin[1:] - end[:-1] <= LONGER * (end - begin)[:-1]
    known = launched[1:] & launched[:-1] & follows & (first[1:] >= first[:-1])
    if known.sum() >= IN_ORDER * follows.sum():
        cadence[:-1][known] = np.diff(first)[known]
    return cadence
