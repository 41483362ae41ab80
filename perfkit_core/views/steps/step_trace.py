"""How long until a step computes, how long does it compute, and what comes after?

A step is cut in three on the host's clock: ``interval`` from its start to its first forward segment (data loading, as a
rule), ``forward_backward`` from there to the end of its last backward segment, ``tail`` to its end (the optimizer, as a
rule). They sum to the step. A step without forward or without backward segments cannot be cut.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import duration, text, words
from perfkit_core.model.schema import BACKWARD, FORWARD, PHASES
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.steps.step_phases import segments
from perfkit_core.views.steps.step_rows import (
    BY_STEP,
    GROUPINGS,
    OVER_STEPS,
    by_step,
    chosen_steps,
    over_all_steps,
    over_steps,
    position,
    step_frame,
    step_rows,
)

PARTS: Final = ("interval", "forward_backward", "tail")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """A row a part; by step a row a step, NA where it cannot be cut. See :data:`COLUMNS`."""
    wide = by_step(VIEW.name, request)
    steps = _cut(trace, chosen_steps(trace, request))
    return steps if wide else over_steps(steps, PARTS, "part", "rank" in request.by)


def _cut(trace: Trace, steps: IntArray) -> pd.DataFrame:
    start, end = trace.ints("start_ns")[steps], trace.end_ns[steps]
    forward, backward = _edges(trace, steps)
    no_forward, no_backward = forward == _LATE, backward == _EARLY
    unknown = no_forward | no_backward | (backward < forward)
    frame = step_frame(trace, steps)
    for name, times in zip(PARTS, (forward - start, backward - forward, end - backward), strict=True):
        frame[f"{name}_ns"] = pd.arrays.IntegerArray(np.where(unknown, 0, times), unknown)
    return frame.assign(missing=_reasons(no_forward, no_backward, unknown)) if unknown.any() else frame


def _edges(trace: Trace, steps: IntArray) -> tuple[IntArray, IntArray]:
    """Start of the first forward and end of the last backward segment of each step."""
    found = segments(trace, np.ones(len(trace), np.bool_))
    at = position(trace, steps, found.rank, found.step)
    first, last = np.full(len(steps), _LATE), np.full(len(steps), _EARLY)
    forward = (found.phase == PHASES.index(FORWARD)) & (at >= 0)
    backward = (found.phase == PHASES.index(BACKWARD)) & (at >= 0)
    np.minimum.at(first, at[forward], found.start_ns[forward])
    np.maximum.at(last, at[backward], found.end_ns[backward])
    return first, last


def _reasons(no_forward: BoolArray, no_backward: BoolArray, unknown: BoolArray) -> pd.Series[str]:
    order = np.where(unknown, "backward ends before forward begins", "")
    text = np.where(no_forward & no_backward, "no forward and no backward", np.where(no_forward, "no forward", order))
    text = np.where(no_backward & ~no_forward, "no backward", text).astype(object)
    text[text == ""] = pd.NA
    return pd.Series(text, dtype=object)


def _why_empty(trace: Trace) -> Text:
    if not len(step_rows(trace)):
        return message(
            "no training steps were recorded: give the profiler a schedule, and call its step() after each iteration"
        )
    return message(
        "no step has both a forward and a backward pass that the recording tells; --by step says what is missing"
    )


_LATE, _EARLY = np.iinfo(np.int64).max, np.iinfo(np.int64).min

COLUMNS: Final = (
    words("part", "Part"),
    *OVER_STEPS,
    *BY_STEP,
    duration("interval_ns", "Interval", by=("step",)),
    duration("forward_backward_ns", "Forward backward", by=("step",)),
    duration("tail_ns", "Tail", by=("step",)),
    text("missing", "Missing", by=("step",), description="why a step cannot be cut"),
)

VIEW = View(
    name="step_trace",
    title="Interval, forward and backward, tail",
    description="each step cut at the beginning of its first forward and the end of its last backward pass",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=_why_empty,
    reduction=over_all_steps("step_trace", table, "part"),
)
