"""View ``step_trace``: the host time of each step before, during and after its forward and backward passes.

- ``interval``: from the start of the step to the start of its first forward segment. Usually this is data loading.
- ``forward_backward``: from there to the end of the last backward segment.
- ``tail``: from there to the end of the step. Usually this is the optimizer.

The three parts sum to the step time. A step without a forward or a backward segment is not divided.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.columns import duration, key, text
from perfkit_core.trace.model.schema import BACKWARD, FORWARD, PHASES
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps import step_phases, step_rows

IN_STEPS: Final = (
    duration("interval_ns", "Interval", by=("step",)),
    duration("forward_backward_ns", "Forward backward", by=("step",)),
    duration("tail_ns", "Tail", by=("step",)),
)


def _by_step(trace: Trace, request: ViewRequest) -> pd.DataFrame:
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
    for part, values in zip(IN_STEPS, times, strict=True):
        result[part.name] = pd.arrays.IntegerArray(np.where(unknown, 0, values), unknown)
    if unknown.any():
        cases = [no_forward & no_backward, no_forward, no_backward, unknown]
        reasons = ["no forward and no backward", "no forward", "no backward", "backward ends before forward begins"]
        missing = np.select(cases, reasons, default="").astype(object)
        missing[~unknown] = pd.NA
        result["missing"] = pd.Series(missing, dtype=object)
    return result


table, REDUCTION = step_rows.over_steps("step_trace", _by_step, "part", IN_STEPS)
COLUMNS: Final = (
    key("part", "Part", words="ids"),
    *step_rows.OVER_STEPS,
    *step_rows.BY_STEP,
    *IN_STEPS,
    text("missing", "Missing", by=("step",), description="reason why the step cannot be divided"),
)

VIEW = View(
    name="step_trace",
    title="Step time before, during and after forward and backward",
    description="each step divided at the start of its first forward and the end of its last backward pass",
    table=table,
    columns=COLUMNS,
    groupings=step_rows.GROUPINGS,
    explain_empty=lambda trace: (
        message("no recorded step has both a forward and a backward pass; --by step shows the reason for each step")
        if len(step_rows.step_rows(trace))
        else WITHOUT_STEPS
    ),
    reduction=REDUCTION,
)
