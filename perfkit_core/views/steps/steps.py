"""How long did each step take, and what was it made of?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.algorithms import intervals
from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DEVICE, DUR, POSITION, RANK, Column, duration, key
from perfkit_core.model.schema import DEVICE_WORK, OTHER, PHASES
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.select import in_steps
from perfkit_core.views.steps.step_phases import Segments, segments
from perfkit_core.views.steps.step_rows import chosen_steps, position, step_frame


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a step; see :data:`COLUMNS`. Phases are the union of their segments on the host, NA where the recording
    knows no phases."""
    rows = chosen_steps(trace, request)
    result = step_frame(trace, rows)
    result.insert(2, "start_ns", trace.ints("start_ns")[rows] - _origins(trace, rows))
    found = segments(trace, in_steps(trace, request))
    key = position(trace, rows, found.rank, found.step)
    for index, name in enumerate(PHASES):
        if name != OTHER:
            result[f"{name}_ns"] = _phase_ns(found, index, key, len(rows))
    result["device_launched_ns"] = _device_launched(trace, rows)
    return result


def _origins(trace: Trace, rows: IntArray) -> IntArray:
    """Start of the first of the steps of each one's rank."""
    start = trace.ints("start_ns")[rows]
    _, group = np.unique(trace.ints("rank")[rows], return_inverse=True)
    first = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, group, start)
    return first[group]


def _phase_ns(found: Segments, phase: int, key: IntArray, count: int) -> pd.Series[int]:
    mine = found.phase == phase
    time = intervals.union_length_by(key[mine], count, found.start_ns[mine], found.end_ns[mine])
    return pd.Series(pd.arrays.IntegerArray(time, np.full(count, not len(found.phase))))


def _device_launched(trace: Trace, rows: IntArray) -> IntArray:
    work = trace.rows("kind", *DEVICE_WORK) & (trace.ints("step") >= 0)
    key = position(trace, rows, trace.ints("rank")[work], trace.ints("step")[work])
    return intervals.union_length_by(key, len(rows), trace.ints("start_ns")[work], trace.end_ns[work])


COLUMNS = (
    RANK,
    key("step", "Step"),
    Column("start_ns", "Start", "ns", POSITION, description="since the first step of the rank"),
    DUR,
    duration("dataloader_ns", "Dataloader"),
    duration("forward_ns", "Forward"),
    duration("backward_ns", "Backward"),
    duration("optimizer_ns", "Optimizer"),
    duration("device_launched_ns", "Device launched", place=DEVICE, description="union; it may run after the step"),
)

VIEW = View(
    name="steps",
    title="Steps",
    description="duration of each step, its phases, and the time of the device work that it launched",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: message(
        "no training steps were recorded: give the profiler a schedule, and call its step() after each iteration"
    ),
)
