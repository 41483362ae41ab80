"""View ``step_trace``: the time of a step before, in and after its forward and backward pass, on the host's clock.

``interval`` lasts from the start of the step to its first forward segment (usually data loading), ``forward_backward``
from there to the end of its last backward segment, ``tail`` to the end of the step (usually the optimizer). They sum to
the step. A step without forward or backward segments cannot be divided.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.language.messages import message
from perfkit_core.model.columns import duration, text, words
from perfkit_core.model.schema import BACKWARD, FORWARD, PHASES
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.steps import step_phases, step_rows

PARTS: Final = ("interval", "forward_backward", "tail")
_LATE, _EARLY = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per part; by step, a row per step, NA if it cannot be divided."""
    return REDUCTION.merge([REDUCTION.reduce(trace, request)], request)


def _by_step(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per step, with the reason if it cannot be divided."""
    steps = step_rows.chosen_steps(trace, request)
    of_phases = step_phases.segments(trace, np.ones(len(trace), np.bool_))
    step = step_rows.position(trace, steps, of_phases.rank, of_phases.step)
    # start of the first forward and end of the last backward segment of each step
    forward, backward = np.full(len(steps), _LATE), np.full(len(steps), _EARLY)
    begins = (of_phases.phase == PHASES.index(FORWARD)) & (step >= 0)
    ends = (of_phases.phase == PHASES.index(BACKWARD)) & (step >= 0)
    np.minimum.at(forward, step[begins], of_phases.start_ns[begins])
    np.maximum.at(backward, step[ends], of_phases.end_ns[ends])
    no_forward, no_backward = forward == _LATE, backward == _EARLY
    unknown = no_forward | no_backward | (backward < forward)

    result = step_rows.step_frame(trace, steps)
    times = (forward - trace.ints("start_ns")[steps], backward - forward, trace.end_ns[steps] - backward)
    for name, values in zip(PARTS, times, strict=True):
        result[f"{name}_ns"] = pd.arrays.IntegerArray(np.where(unknown, 0, values), unknown)
    if unknown.any():
        cases = [no_forward & no_backward, no_forward, no_backward, unknown]
        reasons = ["no forward and no backward", "no forward", "no backward", "backward ends before forward begins"]
        missing = np.select(cases, reasons, default="").astype(object)
        missing[~unknown] = pd.NA
        result["missing"] = pd.Series(missing, dtype=object)
    return result


REDUCTION: Final = step_rows.over_steps("step_trace", _by_step, "part")
COLUMNS: Final = (
    words("part", "Part"),
    *step_rows.OVER_STEPS,
    *step_rows.BY_STEP,
    duration("interval_ns", "Interval", by=("step",)),
    duration("forward_backward_ns", "Forward backward", by=("step",)),
    duration("tail_ns", "Tail", by=("step",)),
    text("missing", "Missing", by=("step",), description="why a step cannot be divided"),
)

VIEW = View(
    name="step_trace",
    title="Interval, forward and backward, tail",
    description="each step divided at the start of its first forward and the end of its last backward pass",
    table=table,
    columns=COLUMNS,
    groupings=step_rows.GROUPINGS,
    explain_empty=lambda trace: (
        message("no recorded step has both a forward and a backward pass; --by step shows what is missing")
        if len(step_rows.step_rows(trace))
        else step_rows.NO_STEPS
    ),
    reduction=REDUCTION,
)
