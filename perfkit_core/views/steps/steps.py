"""Views ``steps``, the duration of each step and of its phases, and ``step_trace``, the host time of each step before,
during and after its forward and backward passes. The parts of ``step_trace`` are:

- ``interval``: from the start of the step to the start of its first forward segment. Usually this is data loading.
- ``forward_backward``: from there to the end of the last backward segment.
- ``tail``: from there to the end of the step. Usually this is the optimizer.

The three parts sum to the step time. A step without a forward or a backward segment is not divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby, intervals
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduced, View, ViewRequest
from perfkit_core.trace.assembly.lost_records import incomplete_steps
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.columns import DEVICE, DUR, RANK, duration, key, position, text
from perfkit_core.trace.model.schema import BACKWARD, DEVICE_WORK, FORWARD, OTHER, PHASES
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.select import in_steps
from perfkit_core.views.steps import step_phases, step_rows
from perfkit_core.views.steps.inferred_steps import why_no_steps
from perfkit_core.views.steps.steady_steps import IN_ORDER
from perfkit_core.views.tables import concat, integers


def _merge(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
    """Return one row per step, with :data:`COLUMNS`. The time of a phase is the union of its host segments."""
    result = concat(partials)
    if result.empty:
        return result
    start = result["start_ns"].to_numpy(np.int64)
    ranks, rank = np.unique(result["rank"].fillna(-1).to_numpy(np.int64), return_inverse=True)
    result["start_ns"] = start - groupby.extremes(rank, len(ranks), start)[0][rank]
    first_work = result.pop("first_work_ns")
    next_work = first_work.shift(-1)
    follows = np.append((np.diff(rank) == 0) & (np.diff(result["step"].to_numpy(np.int64)) == 1), False)
    complete = result["device_launched_ns"].notna().to_numpy(np.bool_)
    follows &= complete & np.append(complete[1:], False)
    cadence = next_work - first_work
    known = follows & (cadence >= 0).fillna(False).to_numpy(np.bool_)
    pairs, in_order = (np.bincount(rank, mask, len(ranks)) for mask in (follows, known))
    result["device_cadence_ns"] = cadence.where(known & (in_order >= IN_ORDER * pairs)[rank])
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
    first_work = groupby.extremes(step, len(steps), trace.ints("start_ns")[work])[0]
    result["first_work_ns"] = integers(first_work, (first_work < np.iinfo(np.int64).max) & ~lost)
    return result


COLUMNS = (
    RANK,
    key("step", "Step", thing="step"),
    position("start_ns", "Start", "time since the start of the rank's first step"),
    DUR,
    duration("dataloader_ns", "Dataloader"),
    duration("forward_ns", "Forward"),
    duration("backward_ns", "Backward"),
    duration("optimizer_ns", "Optimizer"),
    duration("device_launched_ns", "Device launched", place=DEVICE),
    duration(
        "device_cadence_ns",
        "Device cadence",
        "time from the first device work that the step launched to the first that the next step launched; if it is "
        "longer than the duration, the device determines how long a step takes",
        place=DEVICE,
    ),
)

VIEW = View(
    name="steps",
    title="Steps",
    description="duration of each step and its phases, and time of the device work launched in the step",
    table=Reduced(_reduce, _merge, in_parts=lambda trace: ()),
    columns=COLUMNS,
    explain_empty=why_no_steps,
)


TRACE_PARTS: Final = (
    duration("interval_ns", "Interval", by=("step",)),
    duration("forward_backward_ns", "Forward backward", by=("step",)),
    duration("tail_ns", "Tail", by=("step",)),
)


def _divided_steps(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per step: the time of each part, or NA and the reason if the step cannot be divided."""
    steps = step_rows.chosen_steps(trace, request)
    segments = step_phases.segments(trace, np.ones(len(trace), np.bool_))
    step = step_rows.position(trace, steps, segments.rank, segments.step)
    forward, backward = (np.where(segments.phase == PHASES.index(name), step, -1) for name in (FORWARD, BACKWARD))
    forward_start = groupby.extremes(forward, len(steps), segments.start_ns)[0]
    backward_end = groupby.extremes(backward, len(steps), segments.end_ns)[1]
    no_forward, no_backward = forward_start == np.iinfo(np.int64).max, backward_end == np.iinfo(np.int64).min
    unknown = no_forward | no_backward | (backward_end < forward_start)

    result, start, end = step_rows.step_frame(trace, steps), trace.ints("start_ns")[steps], trace.end_ns[steps]
    times = (forward_start - start, backward_end - forward_start, end - backward_end)
    for part, values in zip(TRACE_PARTS, times, strict=True):
        result[part.name] = pd.arrays.IntegerArray(np.where(unknown, 0, values), unknown)
    if unknown.any():
        cases = [no_forward & no_backward, no_forward, no_backward, unknown]
        reasons = ["no forward and no backward", "no forward", "no backward", "backward ends before forward begins"]
        missing = np.select(cases, reasons, default="").astype(object)
        missing[~unknown] = pd.NA
        result["missing"] = pd.Series(missing, dtype=object)
    return result


TRACE_COLUMNS: Final = (
    key("part", "Part", words="ids"),
    *step_rows.OVER_STEPS,
    *step_rows.BY_STEP,
    *TRACE_PARTS,
    text("missing", "Missing", "reason why the step cannot be divided", by=("step",)),
)

TRACE_VIEW = View(
    name="step_trace",
    title="Step time before, during and after forward and backward",
    description="each step divided at the start of its first forward and the end of its last backward pass",
    table=step_rows.over_steps(_divided_steps, "part", TRACE_PARTS),
    columns=TRACE_COLUMNS,
    groupings=step_rows.GROUPINGS,
    explain_empty=lambda trace: (
        message("no recorded step has both a forward and a backward pass; --by step shows the reason for each step")
        if len(step_rows.step_rows(trace))
        else WITHOUT_STEPS
    ),
)
