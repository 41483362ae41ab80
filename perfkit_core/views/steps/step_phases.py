"""View ``model``: host and device time of data loading, forward, backward, optimizer and the rest of the step.

- The host time of a phase is the sum of its segments. The phase ``other`` is the step time that no segment covers.
- The device time of a phase is the union, within each step, of the device work launched in the phase. The phases can
  sum to more than the device time of the step, because they can run on parallel streams.
- If steps were recorded, only events in steps count. Device work without a recorded launch has a separate row.

A *segment* is an interval of host time that belongs to one phase:

- A recorded span of a phase is a segment, for example Paddle's Forward, torch's ``Optimizer.step#…``, or a module.
- Some phases have operators but no span, for example torch's backward. Consecutive operators of such a phase on one
  thread in one step form a segment, including the time between them. The segment ends if another phase begins, and in
  the forward phase at a gap that is longer than all its operators together.
- A segment that outlasts its step is cut at the end of the step.

Each segment of a phase is a call. But an optimizer that clears gradients (torch's ``zero_grad``) does not update
parameters, so the time belongs to the next update in the step, or else to the previous one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Merged, View, ViewRequest
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.columns import CALLS, CPU, DEVICE, HOST, ON_DEVICE, Share, share, words
from perfkit_core.trace.model.schema import (
    DATALOADER,
    DEVICE_WORK,
    FORWARD,
    KERNEL,
    NESTED_KINDS,
    OPTIMIZER,
    OTHER,
    PHASES,
    STEP,
)  # fmt: skip
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution, tables
from perfkit_core.views.select import in_steps, marked, rank_codes, span_ns, threads, union_ns
from perfkit_core.views.steps.step_rows import chosen_steps, native_steps, position, step_rows

CLEARS_GRADIENTS: Final = re.compile(r"zero_?grad|clear_?grad", re.IGNORECASE)
"""Names of spans in which an optimizer clears gradients."""
UNLAUNCHED: Final = "unlaunched"
"""Name of the row of device work whose launch was not recorded."""
ORDER: Final = (STEP, *PHASES, UNLAUNCHED)
_STATISTICS: Final = ("total", "avg", "min", "max")
_INTEGERS: Final = ("calls", *(f"{statistic}_{side}_ns" for side in ("cpu", "device") for statistic in _STATISTICS))
_NAMES: Final = ("phase", *_INTEGERS[:5], "cpu_ratio", *_INTEGERS[5:], "device_ratio")


@dataclass(frozen=True, slots=True)
class Segments:
    """Intervals of host time, each in one phase. Arrays have shape (segments,), except the two about roots."""

    phase: IntArray  # index into schema.PHASES
    step: IntArray
    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray
    roots: IntArray  # rows of the outermost events in all segments
    segment_of_root: IntArray  # segment of each root

    @property
    def first_root(self) -> IntArray:
        """The row of the first root of each segment."""
        return self.roots[np.unique(self.segment_of_root, return_index=True)[1]]

    @property
    def dur_ns(self) -> IntArray:
        return self.end_ns - self.start_ns

    def of_rows(self, trace: Trace, rows: IntArray) -> IntArray:
        """Return the index of the segment around each host event or around each launch of device work (-1 if none)."""
        segment = np.full(len(trace), NO_ROW, np.int32)  # int32 saves memory; there are no more segments than rows
        segment[self.roots] = self.segment_of_root
        segment = nesting.first_on_path(trace.ints("parent"), segment)
        launched_by = trace.ints("launched_by")[rows]
        return segment[np.where(launched_by == NO_ROW, rows, launched_by)].astype(np.int64)


def segments(trace: Trace, chosen: BoolArray, within_step: bool = True) -> Segments:
    """Return the segments that the ``chosen`` events form, for all phases except ``other``. If ``within_step``, cut
    each segment at the end of the step in which it starts."""
    phase, rows = _phase_index(trace), _roots(trace)
    rows = rows if chosen.all() else rows[chosen[rows]]
    spans = trace.rows("kind", *PHASES)[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = spans[1:] | spans[:-1]
    first[1:] |= np.diff(threads(trace).code[rows]) != 0
    first[1:] |= np.diff(trace.ints("step")[rows]) != 0
    first[1:] |= np.diff(phase[rows]) != 0
    first |= _interrupted(trace, rows, phase[rows])
    run = np.cumsum(first) - 1
    gap = trace.ints("start_ns")[rows[1:]] - trace.end_ns[rows[:-1]]
    long = gap > groupby.sums(run, len(rows), trace.ints("dur_ns")[rows])[run[1:]]
    first[1:] |= long & (phase[rows[1:]] == PHASES.index(FORWARD))
    at = np.flatnonzero(first)
    if not len(at):
        return Segments(*[np.empty(0, np.int64)] * 7)
    rank, step = trace.ints("rank")[rows[at]], trace.ints("step")[rows[at]]
    start = np.minimum.reduceat(trace.ints("start_ns")[rows], at)
    end = np.maximum.reduceat(trace.end_ns[rows], at)
    if within_step:
        steps = step_rows(trace)
        step_end = np.append(trace.end_ns[steps], np.iinfo(np.int64).max)
        end = np.minimum(end, step_end[position(trace, steps, rank, step)])
    return Segments(phase[rows[at]].astype(np.int64), step, rank, start, end, rows, np.cumsum(first) - 1)


def _interrupted(trace: Trace, rows: IntArray, phase: npt.NDArray[np.int8]) -> BoolArray:
    """Return, for each of the ``rows``, whether another phase begins on the same rank between the preceding row and
    this row. Data loading does not count as another phase, because loaders prefetch on other threads."""
    rank = np.unique(trace.ints("rank")[rows], return_inverse=True)[1]
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    width = int((end - start.min(initial=0)).max(initial=0)) + 1
    time = rank * width + start - start.min(initial=0)  # shift the times of each rank, so that ranks do not overlap
    gap_start = time - np.append(0, np.maximum(start[1:] - end[:-1], 0))
    mask = np.zeros(len(rows), np.bool_)
    for number in np.unique(phase):
        if number != PHASES.index(DATALOADER):
            begins = np.sort(time[phase == number])
            mask |= (phase != number) & (np.searchsorted(begins, gap_start) < np.searchsorted(begins, time))
    return mask


@once
def _phase_index(trace: Trace) -> npt.NDArray[np.int8]:
    codes = trace.codes("phase")
    return codes.lookup(np.array([PHASES.index(value) for value in codes.values], np.int8), -1)


@once
def _roots(trace: Trace) -> IntArray:
    """Return the rows of the outermost host events of each phase, sorted by thread and time."""
    all_threads = threads(trace)
    phase, parent = _phase_index(trace), trace.ints("parent")
    phased = trace.host & trace.rows("kind", *NESTED_KINDS) & (phase >= 0) & (phase != PHASES.index(OTHER))
    rows = np.flatnonzero(phased & ((parent == NO_ROW) | (phase[parent] != phase)))
    ordered: IntArray = rows[groupby.stable_order(all_threads.code[rows], len(all_threads))]
    return ordered


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row for the step, one per phase that occurs, one for ``other``, and one for unlaunched device work (if
    any), with :data:`COLUMNS`. Minima and maxima are times of a single step or, in rows of phases, a single segment."""
    if request.native:
        return _native_table(trace, request)
    chosen, steps = in_steps(trace, request), chosen_steps(trace, request)
    if len(steps):
        chosen = chosen & (trace.ints("step") >= 0)
    phase_segments = segments(trace, chosen)
    if not len(steps) and not len(phase_segments.phase):
        return model_table([], 0, 0)
    device_work = trace.rows("kind", *DEVICE_WORK)
    unlaunched = device_work & (trace.ints("launched_by") == NO_ROW)
    work = np.flatnonzero(chosen & device_work & ~unlaunched)
    start, end = trace.ints("start_ns")[work], trace.end_ns[work]
    rank, count = rank_codes(trace)
    group = rank[work]  # without steps, the unions are taken for each rank
    if len(steps):
        group, count = position(trace, steps, trace.ints("rank")[work], trace.ints("step")[work]), len(steps)
    segment = phase_segments.of_rows(trace, work)
    segment_device_ns = intervals.union_length_by(segment, len(phase_segments.phase), start, end)
    phase = np.append(phase_segments.phase, -1)[segment]

    rows = []
    for index, name in enumerate(PHASES):
        in_phase = phase_segments.phase == index
        if in_phase.any():
            device = intervals.union_length_by(np.where(phase == index, group, -1), count, start, end)
            call = _calls(trace, phase_segments.first_root[in_phase])
            cpu_ns, device_ns = (_summed(call, times[in_phase]) for times in (phase_segments.dur_ns, segment_device_ns))
            rows.append(row(name, cpu_ns, device_ns, int(device.sum())))
    denominators = span_ns(trace, chosen), sum(r["total_device_ns"] for r in rows)
    if len(steps):
        device = intervals.union_length_by(group, count, start, end)
        outside = intervals.union_length_by(np.where(segment == NO_ROW, group, -1), count, start, end)
        step_time = union_ns(trace, marked(trace, steps))
        denominators = step_time, int(device.sum())
        rows.insert(0, row(STEP, trace.ints("dur_ns")[steps], device, denominators[1]))
        rows.append(row(OTHER, cpu_total=_uncovered(trace, steps, phase_segments), device_total=int(outside.sum())))
    if request.steps is None and unlaunched.any():
        rows.append(row(UNLAUNCHED, device_total=union_ns(trace, unlaunched)))
    result = model_table(rows, *denominators)
    result.loc[result["phase"] == UNLAUNCHED, "device_ratio"] = pd.NA  # without a launch, the step is unknown
    return result


def _calls(trace: Trace, rows: IntArray) -> IntArray:
    """Return the number of the call of a phase that each span or segment is part of. ``rows`` are its first events."""
    clears = clears_gradients(trace)[rows]
    if not clears.any() or clears.all():
        return np.arange(len(rows))
    keys = [trace.ints(name)[rows] for name in ("rank", "step")]
    order = np.lexsort((trace.ints("start_ns")[rows], *reversed(keys)))
    updates = order[~clears[order]]
    following: IntArray = np.cumsum(~clears[order]) - ~clears[order]  # for an update, this is the update itself
    choices = np.stack([following, following - 1]).clip(0, len(updates) - 1)
    same = np.logical_and.reduce([key[updates][choices] == key[order] for key in keys])
    call = np.empty(len(rows), np.int64)
    call[order] = np.where(same[0] | ~same[1], choices[0], choices[1])
    return call


@once
def clears_gradients(trace: Trace) -> BoolArray:
    """Return the mask of the spans in which an optimizer clears gradients, shape (rows,)."""
    names = trace.codes("name")
    clears = np.fromiter((CLEARS_GRADIENTS.search(name) is not None for name in names.values), np.bool_)
    mask: BoolArray = trace.rows("kind", OPTIMIZER) & names.lookup(clears, False)
    return mask


def _summed(call: IntArray, times: IntArray) -> IntArray:
    return groupby.sums(call, int(call.max(initial=-1)) + 1, times)


def _uncovered(trace: Trace, steps: IntArray, phase_segments: Segments) -> int:
    ranks, rank = np.unique(np.append(phase_segments.rank, trace.ints("rank")[steps]), return_inverse=True)
    starts = np.append(phase_segments.start_ns, trace.ints("start_ns")[steps])
    ends = np.append(phase_segments.end_ns, trace.end_ns[steps])
    both, covered = (
        intervals.union_length_by(rank[:count], len(ranks), starts[:count], ends[:count])
        for count in (len(rank), len(phase_segments.rank))
    )
    return int((both - covered).sum())


def row(
    phase: str,
    cpu: IntArray | None = None,
    device: IntArray | None = None,
    device_total: int | None = None,
    cpu_total: int | None = None,
) -> dict[str, Any]:
    """Return a row with :data:`COLUMNS` except the ratios. ``cpu`` and ``device`` are the times of the calls in ns.
    A total that is not given is the sum of the times. An average is the total divided by the number of calls."""
    result: dict[str, Any] = {"phase": phase, "calls": None if cpu is None else len(cpu)}
    for side, times, total in (("cpu", cpu, cpu_total), ("device", device, device_total)):
        numbers: tuple[int | None, ...] = (total, None, None, None)
        if times is not None:
            total = int(times.sum()) if total is None else total
            numbers = (total, int(tables.rounded_division(total, len(times))), int(times.min()), int(times.max()))
        result |= {f"{name}_{side}_ns": number for name, number in zip(_STATISTICS, numbers, strict=True)}
    return result


def model_table(rows: Sequence[dict[str, Any]], steps_cpu_ns: int, steps_device_ns: int) -> pd.DataFrame:
    """Return a table of the rows with their shares of the host and device time of the steps (NA if unknown)."""
    cells: dict[str, Any] = {name: pd.array([row.get(name) for row in rows], "Int64") for name in _INTEGERS}
    for side, step_ns in (("cpu", steps_cpu_ns), ("device", steps_device_ns)):
        part = cells[f"total_{side}_ns"].astype("Float64")
        cells[f"{side}_ratio"] = part / step_ns if step_ns else part * 0
    cells["phase"] = [row["phase"] for row in rows]
    return pd.DataFrame({name: cells[name] for name in _NAMES})


def _native_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return Paddle's Model Summary. Its times are sums over calls and kernels, not unions. ``other`` is the step time
    less the sum of the phases, so it is negative if phases overlap."""
    chosen = in_steps(trace, request)
    phases, steps = phase_rows(trace, chosen), native_steps(trace, chosen)
    cpu, device = (sum(r[f"total_{side}_ns"] for r in phases) for side in ("cpu", "device"))
    if not steps.any():
        return model_table(phases, cpu, device)
    step = row(STEP, trace.ints("dur_ns")[steps], attribution.total_device_ns(trace, KERNEL)[steps])
    step_time, kernels = union_ns(trace, steps), step["total_device_ns"]
    other = row(OTHER, cpu_total=step_time - cpu, device_total=kernels - device)
    return model_table([step, *phases, other], step_time, kernels)


def phase_rows(trace: Trace, chosen: BoolArray) -> list[dict[str, Any]]:
    """Return one :func:`row` per phase, as in Paddle's Model Summary. Calls of a phase are its outermost spans, or its
    segments if no spans were recorded. The device time of a call is the sum of the kernels launched in the call."""
    dur_ns = trace.ints("dur_ns")
    spans = trace.host & trace.rows("kind", *PHASES) & ~trace.rows("kind", OTHER)
    outermost = nesting.outermost(trace.ints("parent"), spans) == np.arange(len(trace))
    in_calls = attribution.total_device_ns(trace, KERNEL)
    phase_segments = segments(trace, chosen, within_step=False)
    kernels = np.flatnonzero(trace.rows("kind", KERNEL) & chosen)
    in_segments = groupby.sums(phase_segments.of_rows(trace, kernels), len(phase_segments.phase), dur_ns[kernels])
    rows = []
    for index, name in enumerate(PHASES):
        calls, in_phase = np.flatnonzero(chosen & outermost & trace.rows("kind", name)), phase_segments.phase == index
        if name != OTHER and len(calls):
            call = _calls(trace, calls)
            rows.append(row(name, _summed(call, dur_ns[calls]), _summed(call, in_calls[calls])))
        elif name not in (OTHER, OPTIMIZER) and in_phase.any():  # an optimizer without spans is inferred
            rows.append(row(name, phase_segments.dur_ns[in_phase], in_segments[in_phase]))
    return rows


def _steps_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    if not (table["phase"] == STEP).any():
        whole_ns = int(table["total_cpu_ns"].fillna(0).sum())
        return whole_ns if request.native else span_ns(trace, in_steps(trace, request))
    if request.native:
        return union_ns(trace, native_steps(trace, in_steps(trace, request)))
    return union_ns(trace, marked(trace, chosen_steps(trace, request)))


def _device_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    step = table["phase"] == STEP
    counted = table[step] if step.any() else table[table["device_ratio"].notna()]
    return int(counted["total_device_ns"].fillna(0).sum())


def _in_parts(trace: Trace) -> tuple[()] | None:
    """Return None if gradients are cleared in a step without an update: see :func:`_calls`."""
    clears, step = clears_gradients(trace), trace.ints("step")
    updated = np.unique(step[trace.rows("kind", OPTIMIZER) & ~clears & (step >= 0)])
    return () if np.isin(step[clears], updated).all() else None


COLUMNS: Final = (
    words("phase", "Phase"),
    CALLS,
    *CPU,
    share("cpu_ratio", "CPU", Share("total_cpu_ns", whole=_steps_ns), place=HOST),
    *ON_DEVICE,
    share("device_ratio", "Device", Share("total_device_ns", whole=_device_ns), place=DEVICE),
)

VIEW = View(
    name="model",
    title="Phases of the step",
    description="host and device time of data loading, forward, backward and optimizer",
    table=Merged(
        table, lambda rows, request: tables.in_order_of(rows, "phase", ORDER), native=True, in_parts=_in_parts
    ),
    columns=COLUMNS,
    explain_empty=lambda trace: message("neither steps nor phases were recorded"),
)
