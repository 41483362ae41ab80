"""Where does a step go: data loading, forward, backward, optimizer, or none of them?

Host time of a phase is the sum of its segments (see ``segments``); ``other`` is the step time that no segment covers, a
union, so it is never negative. Device time is the union, step by step, of the kernels, copies and fills launched in the
phase, so it never exceeds the time that passed; phases whose work runs at the same time on several streams can sum to
more than the step. Where steps were recorded, only what belongs to a step counts; device work without a recorded launch
has a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from perfkit_core.views import attribution
from perfkit_core.views.attribution import unlaunched
from perfkit_core.views.select import in_steps, marked, rank_codes, threads, union_ns
from perfkit_core.views.steps.step_rows import chosen_steps, native_steps, position, step_rows
from perfkit_core.views.tables import in_order_of, rounded_division


@dataclass(frozen=True, slots=True)
class Segments:
    """Parallel arrays, one item a segment. ``phase`` indexes schema.PHASES. ``roots`` are the rows of the outermost
    events of the segments, ``of_root`` the segment of each."""

    phase: IntArray
    step: IntArray
    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray
    roots: IntArray
    of_root: IntArray

    @property
    def dur_ns(self) -> IntArray:
        """Length of each segment."""
        return self.end_ns - self.start_ns

    def of_rows(self, trace: Trace, rows: IntArray) -> IntArray:
        """The segment around some host events and around the launch of some device events, -1: none. Shape
        (len(rows),)."""
        own = np.full(len(trace), NO_ROW, np.int32)  # there are never more segments than rows
        own[self.roots] = self.of_root
        found = nesting.first_on_path(trace.ints("parent"), own)
        launched_by = trace.ints("launched_by")[rows]
        return found[np.where(launched_by == NO_ROW, rows, launched_by)].astype(np.int64)


def segments(trace: Trace, chosen: BoolArray, within_step: bool = True) -> Segments:
    """The segments of all phases but ``other``, from the chosen events; ``within_step``: cut at the end of the step."""
    phase = _phase_index(trace)
    rows = _roots(trace)
    rows = rows if chosen.all() else rows[chosen[rows]]
    spans = trace.rows("kind", *PHASES)[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = spans[1:] | spans[:-1]
    for values in (threads(trace).code, trace.ints("step"), phase):
        first[1:] |= np.diff(values[rows]) != 0
    first |= _others_turn(trace, rows, phase[rows])
    at = np.flatnonzero(first)
    if not len(at):
        nothing = np.empty(0, np.int64)
        return Segments(nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    end = np.maximum.reduceat(trace.end_ns[rows], at)
    return Segments(
        phase[rows[at]].astype(np.int64),
        trace.ints("step")[rows[at]],
        trace.ints("rank")[rows[at]],
        np.minimum.reduceat(trace.ints("start_ns")[rows], at),
        _within_step(trace, end, rows[at]) if within_step else end,
        rows,
        np.cumsum(first) - 1,
    )


def _others_turn(trace: Trace, rows: IntArray, phase: npt.NDArray[np.int8]) -> BoolArray:
    """True where another phase begins in the time between an event and the one before it, shape (rows,). Loaders, which
    work ahead on threads of their own, do not count."""
    rank = np.unique(trace.ints("rank")[rows], return_inverse=True)[1]
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    since = start - start.min(initial=0)
    width = int((end - start.min(initial=0)).max(initial=0)) + 1
    until = rank * width + since
    gap = until - np.append(0, np.maximum(start[1:] - end[:-1], 0))
    found = np.zeros(len(rows), np.bool_)
    for number in np.unique(phase):
        begun = np.sort(until[phase == number])
        if number != PHASES.index(DATALOADER):
            found |= (phase != number) & (np.searchsorted(begun, gap) < np.searchsorted(begun, until))
    return found


def _within_step(trace: Trace, end_ns: IntArray, first: IntArray) -> IntArray:
    """Ends of segments, cut at the end of the step in which their first event starts."""
    steps = step_rows(trace)
    at = position(trace, steps, trace.ints("rank")[first], trace.ints("step")[first])
    limit = np.append(trace.end_ns[steps], np.iinfo(np.int64).max)[at]
    cut: IntArray = np.minimum(end_ns, limit)
    return cut


@once
def _phase_index(trace: Trace) -> npt.NDArray[np.int8]:
    codes = trace.codes("phase")
    return codes.lookup(np.array([PHASES.index(value) for value in codes.values], np.int8), -1)


@once
def _roots(trace: Trace) -> IntArray:
    """Outermost events of each phase, ordered by thread and time."""
    phase = _phase_index(trace)
    phased = trace.host & trace.rows("kind", *NESTED_KINDS) & (phase >= 0) & (phase != PHASES.index(OTHER))
    _keep_changes(trace.ints("parent"), phase, phased)
    rows, found = np.flatnonzero(phased), threads(trace)
    ordered: IntArray = rows[groupby.stable_order(found.code[rows], len(found))]
    return ordered


@compiled
def _keep_changes(parent, phase, kept):  # type: ignore[no-untyped-def]
    """Leaves out the events whose parent is of their phase."""
    for i in range(len(parent)):
        if kept[i] and parent[i] >= 0 and phase[parent[i]] == phase[i]:
            kept[i] = False


UNLAUNCHED: Final = "unlaunched"
"""The row of the device work whose launch was not recorded."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Rows: step, then the phases that occur, then other, then the device work without a launch, where there is any;
    see :data:`COLUMNS`. ``min`` and ``max`` are of a step or a segment."""
    if request.native:
        return _native_table(trace, request)
    steps, found, work = _counted(trace, request)
    if not len(steps) and not len(found.phase):
        return model_table([], 0, 0)
    rows = list(_rows(trace, steps, found, work))
    wholes = _wholes(trace, steps, rows)
    if request.steps is None and unlaunched(trace).any():
        rows.append(row(UNLAUNCHED, device_total=union_ns(trace, unlaunched(trace))))
    result = model_table(rows, *wholes)
    result.loc[result["phase"] == UNLAUNCHED, "device_ratio"] = pd.NA  # it is in no step
    return result


def _wholes(trace: Trace, steps: IntArray, rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Host and device time of the steps; of all phases where there are no steps."""
    if len(steps):
        return union_ns(trace, marked(trace, steps)), rows[0]["total_device_ns"]
    return sum(r["total_cpu_ns"] for r in rows), sum(r["total_device_ns"] for r in rows)


def _counted(trace: Trace, request: ViewRequest) -> tuple[IntArray, Segments, BoolArray]:
    """The steps, the segments and the device work that count."""
    chosen = in_steps(trace, request)
    steps = chosen_steps(trace, request)
    if len(steps):
        chosen = chosen & (trace.ints("step") >= 0)
    return steps, segments(trace, chosen), chosen & trace.rows("kind", *DEVICE_WORK) & ~unlaunched(trace)


def _rows(trace: Trace, steps: IntArray, found: Segments, counted: BoolArray) -> Iterator[dict[str, Any]]:
    work = np.flatnonzero(counted)
    group, count = _groups(trace, steps, work)
    segment = found.of_rows(trace, work)
    if len(steps):
        device = _union_by(trace, work, group, count)
        yield row(STEP, trace.ints("dur_ns")[steps], device, int(device.sum()))
    of_segment = _union_by(trace, work, segment, len(found.phase))
    phase = np.append(found.phase, -1)[segment]
    for index, name in enumerate(PHASES):
        mine = found.phase == index
        if mine.any():
            device = _union_by(trace, work, np.where(phase == index, group, -1), count)
            yield row(name, found.dur_ns[mine], of_segment[mine], int(device.sum()))
    if len(steps):
        device = _union_by(trace, work, np.where(segment == NO_ROW, group, -1), count)
        yield row(OTHER, cpu_total=_uncovered(trace, steps, found), device_total=int(device.sum()))


def _groups(trace: Trace, steps: IntArray, rows: IntArray) -> tuple[IntArray, int]:
    """The step of each of the rows as an index into ``steps``; without steps its rank."""
    if not len(steps):
        rank, count = rank_codes(trace)
        return rank[rows], count
    return position(trace, steps, trace.ints("rank")[rows], trace.ints("step")[rows]), len(steps)


def _union_by(trace: Trace, rows: IntArray, group: IntArray, count: int) -> IntArray:
    return intervals.union_length_by(group, count, trace.ints("start_ns")[rows], trace.end_ns[rows])


def _uncovered(trace: Trace, steps: IntArray, found: Segments) -> int:
    """Step time that no segment covers, within each rank, summed over ranks: what the steps add to the segments."""
    ranks = np.unique(np.concatenate([trace.ints("rank")[steps], found.rank]))
    of_step, of_segment = np.searchsorted(ranks, trace.ints("rank")[steps]), np.searchsorted(ranks, found.rank)
    starts = np.concatenate([found.start_ns, trace.ints("start_ns")[steps]])
    ends = np.concatenate([found.end_ns, trace.end_ns[steps]])
    both = intervals.union_length_by(np.concatenate([of_segment, of_step]), len(ranks), starts, ends)
    return int((both - intervals.union_length_by(of_segment, len(ranks), found.start_ns, found.end_ns)).sum())


def _steps_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The union of the steps of a rank; the time of its phases where there are no steps."""
    if not (table["phase"] == STEP).any():
        return int(table["total_cpu_ns"].fillna(0).sum())
    if request.native:
        return union_ns(trace, native_steps(trace, in_steps(trace, request)))
    return union_ns(trace, marked(trace, chosen_steps(trace, request)))


def _device_ns(trace: Trace, request: ViewRequest, table: pd.DataFrame) -> int:
    """The device work of the steps of a rank, or of its phases where there are no steps."""
    step = table["phase"] == STEP
    counted = table[step] if step.any() else table[table["device_ratio"].notna()]
    return int(counted["total_device_ns"].fillna(0).sum())


def _in_order(table: pd.DataFrame, request: ViewRequest) -> pd.DataFrame:
    """Phases in the order of the view, whichever rank had them first."""
    return in_order_of(table, "phase", (STEP, *PHASES, UNLAUNCHED))


_FOUR = ("total", "avg", "min", "max")
_INTEGERS = ("calls", *(f"{one}_{side}_ns" for side in ("cpu", "device") for one in _FOUR))
_RATIOS = ("cpu_ratio", "device_ratio")
_NAMES = ("phase", *_INTEGERS[:5], "cpu_ratio", *_INTEGERS[5:], "device_ratio")


def row(
    phase: str,
    cpu: IntArray | None = None,
    device: IntArray | None = None,
    device_total: int | None = None,
    cpu_total: int | None = None,
) -> dict[str, Any]:
    """A row from the host and device times of each call; totals that are not their sum, or without calls, by
    themselves. The average is the total over the calls."""
    calls = None if cpu is None else len(cpu)
    return {"phase": phase, "calls": calls, **_four("cpu", cpu, cpu_total), **_four("device", device, device_total)}


def model_table(rows: Sequence[dict[str, Any]], steps_cpu_ns: int, steps_device_ns: int) -> pd.DataFrame:
    """The table; ratios are to the host and device time of the steps, null where a row has no such time."""
    result = pd.DataFrame(list(rows), columns=["phase", *_INTEGERS]).astype(dict.fromkeys(_INTEGERS, "Int64"))
    for side, whole in (("cpu", steps_cpu_ns), ("device", steps_device_ns)):
        part = result[f"total_{side}_ns"].astype("Float64")
        result[f"{side}_ratio"] = part / whole if whole else part * 0
    return result[list(_NAMES)]


def _four(side: str, times: IntArray | None, total: int | None) -> dict[str, int | None]:
    if times is None:
        return {f"{one}_{side}_ns": total if one == "total" else None for one in _FOUR}
    total = int(times.sum()) if total is None else total
    average = int(rounded_division(total, len(times)))
    return dict(
        zip((f"{one}_{side}_ns" for one in _FOUR), (total, average, int(times.min()), int(times.max())), strict=True)
    )


def _native_table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """As Paddle's Model Summary has it: sums of calls and kernels, over the whole recording.

    ``other`` is the step time less the sums of the phases on either side, so it turns negative where phases overlap.
    """
    chosen = in_steps(trace, request)
    phases = phase_rows(trace, chosen)
    steps = native_steps(trace, chosen)
    if not steps.any():
        return model_table(phases, sum(r["total_cpu_ns"] for r in phases), sum(r["total_device_ns"] for r in phases))
    whole = row(STEP, trace.ints("dur_ns")[steps], _kernels(trace)[steps])
    time, kernels = union_ns(trace, steps), whole["total_device_ns"]
    other = row(
        OTHER,
        cpu_total=time - sum(r["total_cpu_ns"] for r in phases),
        device_total=kernels - sum(r["total_device_ns"] for r in phases),
    )
    return model_table([whole, *phases, other], time, kernels)


def phase_rows(trace: Trace, chosen: BoolArray) -> list[dict[str, Any]]:
    """Calls, and sums of host time and kernels, of each phase that occurs: its outermost recorded spans; its segments
    where the framework records no such span."""
    found = [_spans(trace, chosen, name) or _segments(trace, chosen, name) for name in PHASES if name != OTHER]
    return [one for one in found if one]


def _spans(trace: Trace, chosen: BoolArray, name: str) -> dict[str, Any] | None:
    marked = trace.host & trace.rows("kind", *PHASES) & ~trace.rows("kind", OTHER)
    outermost = nesting.outermost(trace.ints("parent"), marked)
    rows = np.flatnonzero(chosen & (outermost == np.arange(len(trace))) & trace.rows("kind", name))
    return row(name, trace.ints("dur_ns")[rows], _kernels(trace)[rows]) if len(rows) else None


def _segments(trace: Trace, chosen: BoolArray, name: str) -> dict[str, Any] | None:
    found = segments(trace, chosen, within_step=False)
    mine = found.phase == PHASES.index(name)
    kernels = np.zeros(len(mine), np.int64)
    launched = np.flatnonzero(trace.rows("kind", KERNEL) & chosen)
    of_row = found.of_rows(trace, launched)
    counted = of_row >= 0
    np.add.at(kernels, of_row[counted], trace.ints("dur_ns")[launched[counted]])
    return row(name, found.dur_ns[mine], kernels[mine]) if mine.any() else None


def _kernels(trace: Trace) -> IntArray:
    return attribution.total_device_ns(trace, KERNEL)


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
    reduction=MergedRows(finish=_in_order),
)
