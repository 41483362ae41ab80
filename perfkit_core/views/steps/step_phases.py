"""View ``model``: host and device time of data loading, forward, backward, optimizer and the rest of the step.

Host time of a phase is the sum of its segments; ``other`` is the step time that no segment covers, a union and never
negative. Device time is the union, per step, of the device work launched in the phase; phases with parallel streams can
sum to more than the step. If steps were recorded, only events in steps count; device work without a recorded launch has
a separate row.

*Segments* are intervals of host time of a phase. A recorded span (Paddle's Forward, torch's ``Optimizer.step#…``, a
module) is a segment. If a phase is only known from its operators (torch's backward nodes, inferred forward),
consecutive ones on a thread within a step are one segment, including the time between them, unless another thread of
the process runs another phase meanwhile (the optimizer between two backward passes). A segment ends with its step at
the latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import groupby, intervals, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.columns import CALLS, CPU, DEVICE, HOST, ON_DEVICE, Share, share, words
from perfkit_core.model.schema import DATALOADER, DEVICE_WORK, KERNEL, NESTED_KINDS, OTHER, PHASES, STEP
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.runtime.compile import compiled
from perfkit_core.views import attribution, tables
from perfkit_core.views.select import in_steps, marked, rank_codes, threads, union_ns
from perfkit_core.views.steps.step_rows import chosen_steps, native_steps, position, step_rows

UNLAUNCHED: Final = "unlaunched"
"""Row of device work whose launch was not recorded."""

_STATISTICS: Final = ("total", "avg", "min", "max")
_INTEGERS: Final = ("calls", *(f"{statistic}_{side}_ns" for side in ("cpu", "device") for statistic in _STATISTICS))
_NAMES: Final = ("phase", *_INTEGERS[:5], "cpu_ratio", *_INTEGERS[5:], "device_ratio")


@dataclass(frozen=True, slots=True)
class Segments:
    """Parallel arrays, one item per segment. ``phase`` indexes schema.PHASES. ``roots``: rows of the outermost events
    of the segments; ``of_root``: segment of each root."""

    phase: IntArray
    step: IntArray
    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray
    roots: IntArray
    of_root: IntArray

    @property
    def dur_ns(self) -> IntArray:
        return self.end_ns - self.start_ns

    def of_rows(self, trace: Trace, rows: IntArray) -> IntArray:
        """Return the segment around each host event, or around the launch of each device event; -1 for none. Shape
        (len(rows),)."""
        own = np.full(len(trace), NO_ROW, np.int32)  # int32 saves memory; there are never more segments than rows
        own[self.roots] = self.of_root
        segment = nesting.first_on_path(trace.ints("parent"), own)
        launched_by = trace.ints("launched_by")[rows]
        return segment[np.where(launched_by == NO_ROW, rows, launched_by)].astype(np.int64)


def segments(trace: Trace, chosen: BoolArray, within_step: bool = True) -> Segments:
    """Return the segments of all phases but ``other`` in the chosen events. ``within_step``: cut them at the end of the
    step in which their first event starts."""
    phase, rows = _phase_index(trace), _roots(trace)
    rows = rows if chosen.all() else rows[chosen[rows]]
    spans = trace.rows("kind", *PHASES)[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = spans[1:] | spans[:-1]
    for values in (threads(trace).code, trace.ints("step"), phase):
        first[1:] |= np.diff(values[rows]) != 0
    first |= _interrupted(trace, rows, phase[rows])
    at = np.flatnonzero(first)
    if not len(at):
        nothing = np.empty(0, np.int64)
        return Segments(nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    rank, step = trace.ints("rank")[rows[at]], trace.ints("step")[rows[at]]
    start = np.minimum.reduceat(trace.ints("start_ns")[rows], at)
    end = np.maximum.reduceat(trace.end_ns[rows], at)
    if within_step:
        steps = step_rows(trace)
        step_end = np.append(trace.end_ns[steps], np.iinfo(np.int64).max)
        end = np.minimum(end, step_end[position(trace, steps, rank, step)])
    return Segments(phase[rows[at]].astype(np.int64), step, rank, start, end, rows, np.cumsum(first) - 1)


def _interrupted(trace: Trace, rows: IntArray, phase: npt.NDArray[np.int8]) -> BoolArray:
    """Return whether another phase begins between each event and the previous one, shape (rows,). Loaders, which
    prefetch on their own threads, do not count."""
    rank = np.unique(trace.ints("rank")[rows], return_inverse=True)[1]
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    since = start - start.min(initial=0)
    width = int((end - start.min(initial=0)).max(initial=0)) + 1
    until = rank * width + since
    gap = until - np.append(0, np.maximum(start[1:] - end[:-1], 0))
    mask = np.zeros(len(rows), np.bool_)
    for number in np.unique(phase):
        begun = np.sort(until[phase == number])
        if number != PHASES.index(DATALOADER):
            mask |= (phase != number) & (np.searchsorted(begun, gap) < np.searchsorted(begun, until))
    return mask


@once
def _phase_index(trace: Trace) -> npt.NDArray[np.int8]:
    codes = trace.codes("phase")
    return codes.lookup(np.array([PHASES.index(value) for value in codes.values], np.int8), -1)


@once
def _roots(trace: Trace) -> IntArray:
    """Return the rows of the outermost events of each phase, ordered by thread and time."""
    phase = _phase_index(trace)
    phased = trace.host & trace.rows("kind", *NESTED_KINDS) & (phase >= 0) & (phase != PHASES.index(OTHER))
    _keep_changes(trace.ints("parent"), phase, phased)
    rows, of_trace = np.flatnonzero(phased), threads(trace)
    ordered: IntArray = rows[groupby.stable_order(of_trace.code[rows], len(of_trace))]
    return ordered


@compiled
def _keep_changes(parent, phase, kept):  # type: ignore[no-untyped-def]
    """Drop the events whose parent has the same phase."""
    for i in range(len(parent)):
        if kept[i] and parent[i] >= 0 and phase[parent[i]] == phase[i]:
            kept[i] = False


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the step, the phases that occur, other, and device work without a launch (if any), with :data:`COLUMNS`.
    ``min`` and ``max`` are of a step or a segment."""
    if request.native:
        return _native_table(trace, request)
    chosen, steps = in_steps(trace, request), chosen_steps(trace, request)
    if len(steps):
        chosen = chosen & (trace.ints("step") >= 0)
    of_phases = segments(trace, chosen)
    if not len(steps) and not len(of_phases.phase):
        return model_table([], 0, 0)
    device_work = trace.rows("kind", *DEVICE_WORK)
    unlaunched = device_work & (trace.ints("launched_by") == NO_ROW)
    work = np.flatnonzero(chosen & device_work & ~unlaunched)
    start, end = trace.ints("start_ns")[work], trace.end_ns[work]
    rank, count = rank_codes(trace)
    group = rank[work]  # without steps, device time is the union on each rank
    if len(steps):
        group, count = position(trace, steps, trace.ints("rank")[work], trace.ints("step")[work]), len(steps)
    segment = of_phases.of_rows(trace, work)
    of_segment = intervals.union_length_by(segment, len(of_phases.phase), start, end)
    phase = np.append(of_phases.phase, -1)[segment]

    rows = []
    for index, name in enumerate(PHASES):
        mine = of_phases.phase == index
        if mine.any():
            device = intervals.union_length_by(np.where(phase == index, group, -1), count, start, end)
            rows.append(row(name, of_phases.dur_ns[mine], of_segment[mine], int(device.sum())))
    wholes = sum(r["total_cpu_ns"] for r in rows), sum(r["total_device_ns"] for r in rows)
    if len(steps):
        device = intervals.union_length_by(group, count, start, end)
        outside = intervals.union_length_by(np.where(segment == NO_ROW, group, -1), count, start, end)
        wholes = union_ns(trace, marked(trace, steps)), int(device.sum())
        rows.insert(0, row(STEP, trace.ints("dur_ns")[steps], device, wholes[1]))
        rows.append(row(OTHER, cpu_total=_uncovered(trace, steps, of_phases), device_total=int(outside.sum())))
    if request.steps is None and unlaunched.any():
        rows.append(row(UNLAUNCHED, device_total=union_ns(trace, unlaunched)))
    result = model_table(rows, *wholes)
    result.loc[result["phase"] == UNLAUNCHED, "device_ratio"] = pd.NA  # it is in no step
    return result


def _uncovered(trace: Trace, steps: IntArray, of_phases: Segments) -> int:
    ranks = np.unique(np.concatenate([trace.ints("rank")[steps], of_phases.rank]))
    of_step, of_segment = np.searchsorted(ranks, trace.ints("rank")[steps]), np.searchsorted(ranks, of_phases.rank)
    starts = np.concatenate([of_phases.start_ns, trace.ints("start_ns")[steps]])
    ends = np.concatenate([of_phases.end_ns, trace.end_ns[steps]])
    both = intervals.union_length_by(np.concatenate([of_segment, of_step]), len(ranks), starts, ends)
    covered = intervals.union_length_by(of_segment, len(ranks), of_phases.start_ns, of_phases.end_ns)
    return int((both - covered).sum())


def row(
    phase: str,
    cpu: IntArray | None = None,
    device: IntArray | None = None,
    device_total: int | None = None,
    cpu_total: int | None = None,
) -> dict[str, Any]:
    """Return a row from the host and device times of each call; the average is the total over the calls. Totals that
    are not the sum of the calls are separate arguments."""
    result: dict[str, Any] = {"phase": phase, "calls": None if cpu is None else len(cpu)}
    for side, times, total in (("cpu", cpu, cpu_total), ("device", device, device_total)):
        numbers: tuple[int | None, ...] = (total, None, None, None)
        if times is not None:
            total = int(times.sum()) if total is None else total
            numbers = (total, int(tables.rounded_division(total, len(times))), int(times.min()), int(times.max()))
        result |= {f"{name}_{side}_ns": number for name, number in zip(_STATISTICS, numbers, strict=True)}
    return result


def model_table(rows: Sequence[dict[str, Any]], steps_cpu_ns: int, steps_device_ns: int) -> pd.DataFrame:
    """Return the table; ratios are to the host and device time of the steps, null if a row has no such time."""
    result = pd.DataFrame(list(rows), columns=["phase", *_INTEGERS]).astype(dict.fromkeys(_INTEGERS, "Int64"))
    for side, whole in (("cpu", steps_cpu_ns), ("device", steps_device_ns)):
        part = result[f"total_{side}_ns"].astype("Float64")
        result[f"{side}_ratio"] = part / whole if whole else part * 0
    return result[list(_NAMES)]


def _native_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return Paddle's Model Summary: sums of calls and kernels over the whole recording. ``other`` is the step time
    less the sums of the phases, so it is negative if phases overlap."""
    chosen = in_steps(trace, request)
    phases, steps = phase_rows(trace, chosen), native_steps(trace, chosen)
    cpu, device = (sum(r[f"total_{side}_ns"] for r in phases) for side in ("cpu", "device"))
    if not steps.any():
        return model_table(phases, cpu, device)
    whole = row(STEP, trace.ints("dur_ns")[steps], attribution.total_device_ns(trace, KERNEL)[steps])
    time, kernels = union_ns(trace, steps), whole["total_device_ns"]
    other = row(OTHER, cpu_total=time - cpu, device_total=kernels - device)
    return model_table([whole, *phases, other], time, kernels)


def phase_rows(trace: Trace, chosen: BoolArray) -> list[dict[str, Any]]:
    """Return calls, and sums of host time and kernels, of each phase. Calls are the outermost recorded spans, or the
    segments if the framework records no such span."""
    dur_ns = trace.ints("dur_ns")
    spans = trace.host & trace.rows("kind", *PHASES) & ~trace.rows("kind", OTHER)
    outermost = nesting.outermost(trace.ints("parent"), spans) == np.arange(len(trace))
    in_calls = attribution.total_device_ns(trace, KERNEL)
    of_phases = segments(trace, chosen, within_step=False)
    launched = np.flatnonzero(trace.rows("kind", KERNEL) & chosen)
    kernels = groupby.sums(of_phases.of_rows(trace, launched), len(of_phases.phase), dur_ns[launched])
    rows = []
    for index, name in enumerate(PHASES):
        calls, mine = np.flatnonzero(chosen & outermost & trace.rows("kind", name)), of_phases.phase == index
        if name != OTHER and len(calls):
            rows.append(row(name, dur_ns[calls], in_calls[calls]))
        elif name != OTHER and mine.any():
            rows.append(row(name, of_phases.dur_ns[mine], kernels[mine]))
    return rows


def _steps_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """Return the union of the steps of a rank; without steps, the time of its phases."""
    if not (table["phase"] == STEP).any():
        return int(table["total_cpu_ns"].fillna(0).sum())
    if request.native:
        return union_ns(trace, native_steps(trace, in_steps(trace, request)))
    return union_ns(trace, marked(trace, chosen_steps(trace, request)))


def _device_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """Return the device work of the steps of a rank; without steps, of its phases."""
    step = table["phase"] == STEP
    counted = table[step] if step.any() else table[table["device_ratio"].notna()]
    return int(counted["total_device_ns"].fillna(0).sum())


COLUMNS: Final = (
    words("phase", "Phase"),
    CALLS,
    *CPU,
    share("cpu_ratio", "CPU", Share("total_cpu_ns", whole=_steps_ns), place=HOST, description="of the steps"),
    *ON_DEVICE,
    share("device_ratio", "Device", Share("total_device_ns", whole=_device_ns), place=DEVICE),
)

VIEW = View(
    name="model",
    title="Phases of the step",
    description="host and device time of data loading, forward, backward and optimizer",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: message("neither steps nor phases were recorded"),
    native=True,
    reduction=MergedRows(
        finish=lambda table, request: tables.in_order_of(table, "phase", (STEP, *PHASES, UNLAUNCHED)),
    ),
)
