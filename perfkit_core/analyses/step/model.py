"""Where does a step go: data loading, forward, backward, optimizer, or none of them?

Host time of a phase is the sum of its segments (see ``segments``); ``other`` is the step time that no segment covers, a
union, so it is never negative. Device time is the union, step by step, of the kernels, copies and fills launched in the
phase, so it never exceeds the time that passed; phases whose work runs at the same time on several streams can sum to
more than the step. Where steps were recorded, only what belongs to a step counts; device work without a recorded launch
has a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.analyses.attribution import unlaunched
from perfkit_core.analyses.merging import in_order_of
from perfkit_core.analyses.native_rules import native_steps
from perfkit_core.analyses.select import in_steps, marked
from perfkit_core.analyses.span import rank_codes, union_ns
from perfkit_core.analyses.step import model_native
from perfkit_core.analyses.step.model_rows import model_table, row
from perfkit_core.analyses.step.segments import Segments, segments
from perfkit_core.analyses.step.step_rows import chosen_steps, position
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.schema import DEVICE_WORK, NO_ROW, OTHER, PHASES, STEP
from perfkit_core.table_columns import CALLS, CPU, DEVICE, HOST, ON_DEVICE, Share, share, words
from perfkit_core.trace import BoolArray, IntArray, Trace

UNLAUNCHED: Final = "unlaunched"
"""The row of the device work whose launch was not recorded."""


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns phase, calls, total/avg/min/max_cpu_ns, cpu_ratio (to the steps), total/avg/min/max_device_ns,
    device_ratio (to the device time of the steps). Rows: step, then the phases that occur, then other, then the device
    work without a launch, where there is any. ``min`` and ``max`` are of a step or a segment."""
    if request.native:
        return model_native.table(trace, request)
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
    explain_empty=lambda trace: in_english("neither steps nor phases were recorded"),
    native=True,
    reduction=MergedRows(finish=_in_order),
)
