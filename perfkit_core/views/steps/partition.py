"""What is every nanosecond of a step spent on? A partition: nothing counts twice, nothing is left out.

Each instant of the step's wall time goes to the first of these that takes place in the rank, over all of its threads,
streams and devices:

1. ``device_compute``: a kernel that is not communication;
2. ``exposed_communication``: communication (see ``collectives``) that no computation hides;
3. ``exposed_copy``: a copy or fill on a device that neither hides;
4. ``input_wait``: the thread that runs the steps is in the data loader, and the devices have nothing to do;
5. ``launch_and_host``: any other recorded host event of the rank, while the devices have nothing to do;
6. ``idle``: nothing but the step was recorded.

Device work counts where it runs, also what an earlier step launched. Where no work on a device was recorded, the
operators are the computation: ``compute``, ``exposed_communication``, ``input_wait``, ``framework`` (host events that
are in no operator: Python frames, labelled ranges, phases, overhead) and ``idle``. Python code between operators is
``idle`` unless Python frames or a range around it were recorded: nothing else tells it from waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.language.messages import message
from perfkit_core.model.columns import DEVICE, duration, words
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.steps.activity import Activity, activities, exclusive_ns, has_device_work
from perfkit_core.views.steps.step_rows import (
    BY_STEP,
    GROUPINGS,
    OVER_STEPS,
    by_step,
    chosen_steps,
    over_all_steps,
    over_steps,
    step_frame,
)

ON_DEVICE: Final = ("device_compute", "exposed_communication", "exposed_copy", "input_wait", "launch_and_host", "idle")
ON_HOST: Final = ("compute", "exposed_communication", "input_wait", "framework", "idle")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """A row a category in the order of precedence; by step a row a step, whose parts sum to its duration. See
    :data:`COLUMNS`."""
    whole = by_step(VIEW.name, request)
    names = ON_DEVICE if has_device_work(trace) else ON_HOST
    steps = chosen_steps(trace, request)
    wide = step_frame(trace, steps)
    for index, times in enumerate(partition(trace, steps).T):
        wide[f"{names[index]}_ns"] = times
    return wide if whole else over_steps(wide, names, "category", "rank" in request.by)


def partition(trace: Trace, steps: IntArray) -> IntArray:
    """Time of each category (:data:`ON_DEVICE` or :data:`ON_HOST`) in each of the step rows, shape (steps, categories).

    Each row sums to the duration of its step."""
    activity = activities(trace)
    result = np.zeros((len(steps), len(ON_DEVICE if activity.on_device else ON_HOST)), np.int64)
    start, end, rank = trace.ints("start_ns")[steps], trace.end_ns[steps], trace.ints("rank")[steps]
    for one in np.unique(rank).tolist():
        mine = rank == one
        result[mine] = exclusive_ns(_layers(activity.of(one), activity.on_device), start[mine], end[mine])
    return result


def _layers(sets: Activity, on_device: bool) -> Sequence[Intervals]:
    device = (sets.compute, sets.communication, *((sets.copy,) if on_device else ()))
    return (*device, sets.loading, sets.host)


IN_STEPS: Final = (
    duration("device_compute_ns", "Device compute", place=DEVICE),
    duration("compute_ns", "Compute"),
    duration("exposed_communication_ns", "Exposed communication"),
    duration("exposed_copy_ns", "Exposed copy"),
    duration("input_wait_ns", "Input wait"),
    duration("launch_and_host_ns", "Launch and host"),
    duration("framework_ns", "Framework"),
    duration("idle_ns", "Idle"),
)
"""What a step is made of: these sum to its duration."""
COLUMNS: Final = (
    words("category", "Category", device_values=("device_compute", "exposed_copy")),
    *OVER_STEPS,
    *BY_STEP,
    *(replace(part, by=("step",)) for part in IN_STEPS),
)

VIEW = View(
    name="partition",
    title="What the steps are spent on",
    description="every nanosecond of the steps counted once: computation, then what no computation hides",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    explain_empty=lambda trace: message(
        "no training steps were recorded: give the profiler a schedule, and call its step() after each iteration"
    ),
    reduction=over_all_steps("partition", table, "category"),
)
