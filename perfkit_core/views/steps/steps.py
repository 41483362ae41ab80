"""View ``steps``: the duration of each step and of its phases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.trace.assembly.lost_records import incomplete_steps
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.columns import DEVICE, DUR, POSITION, RANK, Column, duration, key
from perfkit_core.trace.model.schema import DEVICE_WORK, OTHER, PHASES
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import in_steps
from perfkit_core.views.steps import step_phases, step_rows
from perfkit_core.views.tables import concat, integers


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per step, with :data:`COLUMNS`. The time of a phase is the union of its host segments."""
    return _merge([_reduce(trace, request)], request)


def _merge(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
    result = concat(partials)
    if result.empty:
        return result
    start = result["start_ns"].to_numpy(np.int64)
    ranks, rank = np.unique(result["rank"].fillna(-1).to_numpy(np.int64), return_inverse=True)
    result["start_ns"] = start - groupby.extremes(rank, len(ranks), start)[0][rank]
    for name in (f"{phase}_ns" for phase in PHASES if phase != OTHER):
        has_phases = result[name].notna().groupby(rank).transform("any")  # a part of a rank may have no phases
        result[name] = result[name].mask(result[name].isna() & has_phases, 0)
    return result


def _reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return the table with ``start_ns`` on the clock of the recording."""
    steps = step_rows.chosen_steps(trace, request)
    result = step_rows.step_frame(trace, steps)
    result.insert(2, "start_ns", trace.ints("start_ns")[steps])
    segments = step_phases.segments(trace, in_steps(trace, request))
    step = step_rows.position(trace, steps, segments.rank, segments.step)
    unknown = np.full(len(steps), not len(segments.phase))
    for index, name in enumerate(PHASES):
        if name != OTHER:
            in_phase = segments.phase == index
            time = intervals.union_length_by(
                step[in_phase], len(steps), segments.start_ns[in_phase], segments.end_ns[in_phase]
            )
            result[f"{name}_ns"] = pd.Series(pd.arrays.IntegerArray(time, unknown))
    work = trace.rows("kind", *DEVICE_WORK) & (trace.ints("step") >= 0)
    step = step_rows.position(trace, steps, trace.ints("rank")[work], trace.ints("step")[work])
    edges = trace.ints("start_ns")[work], trace.end_ns[work]
    launched = intervals.union_length_by(step, len(steps), *edges)
    lost = incomplete_steps(trace)[steps]
    result["device_launched_ns"] = integers(launched, ~lost) if lost.any() else launched
    return result


COLUMNS = (
    RANK,
    key("step", "Step", thing="step"),
    Column("start_ns", "Start", "ns", POSITION, description="time since the start of the rank's first step"),
    DUR,
    duration("dataloader_ns", "Dataloader"),
    duration("forward_ns", "Forward"),
    duration("backward_ns", "Backward"),
    duration("optimizer_ns", "Optimizer"),
    duration("device_launched_ns", "Device launched", place=DEVICE),
)

VIEW = View(
    name="steps",
    title="Steps",
    description="duration of each step and its phases, and time of the device work launched in the step",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: WITHOUT_STEPS,
    in_parts=lambda trace: (),
    reduction=Reduction(_reduce, _merge),
)
