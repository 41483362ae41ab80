"""Views ``partition``, every nanosecond of a step assigned to exactly one category, and ``ranks``, the steps of all
ranks of a job, side by side.

Each instant of a step belongs to the first of these categories that applies to the rank, on any of its threads, streams
and devices:

1. ``device_compute``: a kernel runs that is not communication.
2. ``exposed_communication``: communication (see the view ``collectives``) runs, and nothing is computed.
3. ``exposed_copy``: a memcpy or memset runs, and nothing is computed or communicated.
4. ``input_wait``: the thread that runs the steps is in the data loader, and no device works.
5. ``launch_and_host``: another recorded host event runs, and no device works.
6. ``idle``: nothing but the step was recorded.

Device work counts in the step in which it runs, even if an earlier step launched it. Python code between operators is
``idle`` unless Python frames or a range around the code were recorded. Steps in which device work was not recorded
(finding ``launches-without-device-work`` or ``graph-replays-incomplete``) have no categories.

If no device work was recorded, operators are the computation. The categories are then ``compute``,
``exposed_communication``, ``input_wait``, ``framework`` (host events in no operator) and ``idle``.

If ranks wait for each other, a step takes as long on every rank as on the slowest rank. The ranks then differ only in
their time outside communication: the step time less ``exposed_communication``. A median is taken over the ranks that
recorded the step. If the number of ranks is even, the median is the lower of the two middle values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language.messages import message
from perfkit_core.plugins.contracts import Reduced, View, ViewRequest
from perfkit_core.trace.assembly.lost_records import incomplete_steps, lost_records
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.columns import DEVICE, duration, key
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import tables
from perfkit_core.views.communication.instances import needs_several_ranks
from perfkit_core.views.steps import step_rows
from perfkit_core.views.steps.activity import activities, exclusive_ns, has_device_work
from perfkit_core.views.steps.step_rows import OF_STEP
from perfkit_core.views.tables import integers, with_columns

_UNKNOWN: Final = message("the device work of no step was recorded completely, so how long devices are idle is unknown")
ON_DEVICE: Final = ("device_compute", "exposed_communication", "exposed_copy", "input_wait", "launch_and_host", "idle")
ON_HOST: Final = ("compute", "exposed_communication", "input_wait", "framework", "idle")


def by_step(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per step: the columns of :func:`step_rows.step_frame` and the time of each category. The times are
    NA for steps in which device work was not recorded."""
    names = ON_DEVICE if has_device_work(trace) else ON_HOST
    steps = step_rows.chosen_steps(trace, request)
    times, lost = zip(names, partition(trace, steps).T, strict=True), incomplete_steps(trace)[steps]
    columns = {f"{name}_ns": integers(time, ~lost) if lost.any() else time for name, time in times}
    return with_columns(step_rows.step_frame(trace, steps), columns)


def partition(trace: Trace, steps: IntArray) -> IntArray:
    """Return the time of each category (:data:`ON_DEVICE` or :data:`ON_HOST`) in each step, in ns, shape (steps,
    categories). Each row sums to the duration of its step."""
    return of_windows(trace, trace.ints("rank")[steps], trace.ints("start_ns")[steps], trace.end_ns[steps])


def of_windows(trace: Trace, rank: IntArray, start: IntArray, end: IntArray) -> IntArray:
    """Return the time of each category in windows [start, end) of one rank each, shape (windows, categories)."""
    activity = activities(trace)
    result = np.zeros((len(rank), len(ON_DEVICE if activity.on_device else ON_HOST)), np.int64)
    for number in np.unique(rank).tolist():
        in_rank, sets = rank == number, activity.of(trace, number)
        on_device = [sets.compute, sets.communication, *([sets.copy] if activity.on_device else [])]
        result[in_rank] = exclusive_ns([*on_device, sets.loading, sets.host], start[in_rank], end[in_rank])
    return result


def _threads_of_steps(trace: Trace) -> frozenset[tuple[int, int]]:
    steps = step_rows.step_rows(trace)
    return frozenset(zip(trace.ints("pid")[steps].tolist(), trace.ints("tid")[steps].tolist(), strict=True))


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
"""Time of each category in a step. The columns sum to the duration of the step."""
COLUMNS: Final = (
    key("category", "Category", words="ids", place=("device_compute", "exposed_copy")),
    *step_rows.OVER_STEPS,
    *step_rows.BY_STEP,
    *(replace(part, by=("step",)) for part in IN_STEPS),
)

VIEW = View(
    name="partition",
    title="Step time by category",
    description="every nanosecond of the steps, assigned to exactly one category; computation has precedence",
    table=step_rows.over_steps(
        by_step, "category", IN_STEPS, lambda trace: (has_device_work(trace), _threads_of_steps(trace))
    ),
    columns=COLUMNS,
    groupings=step_rows.GROUPINGS,
    explain_empty=lambda trace: _UNKNOWN if lost_records(trace).steps.size else WITHOUT_STEPS,
)


_KEYS: Final = ("rank", "step", "dur_ns")


def _side_by_side(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank and step, with :data:`COLUMNS`. The table is empty if only one rank was recorded."""
    steps = tables.concat(partials)
    if steps["rank"].nunique() < 2:
        steps = steps.iloc[:0]
    outside_communication = steps["dur_ns"] - steps["exposed_communication_ns"]
    compared = {
        "dur_over_median_ns": _over_median(steps, steps["dur_ns"]),
        "own_time_ns": outside_communication.astype("Int64"),
        "own_time_over_median_ns": _over_median(steps, outside_communication),
    }
    parts = [name for name in steps.columns if name not in _KEYS]
    return steps.assign(**compared)[[*_KEYS, *compared, *parts]].reset_index(drop=True)


def _over_median(steps: pd.DataFrame, times: pd.Series[int]) -> pd.Series[int]:
    """Return the times minus the median over all ranks in the same step. NA if only one rank recorded the step."""
    times = times.dropna()
    steps = steps.loc[times.index]
    by_step = times.groupby(steps["step"])
    median = by_step.transform(lambda values: np.sort(values.to_numpy(np.int64))[(len(values) - 1) // 2])
    several = steps.groupby("step")["rank"].transform("nunique") > 1
    return (times - median).astype("Int64").where(several)


RANKS_COLUMNS: Final = (
    *OF_STEP,
    duration("dur_over_median_ns", "Duration less median", "duration less the median over the ranks"),
    duration("own_time_ns", "Time outside communication", "duration less exposed communication"),
    duration("own_time_over_median_ns", "Time outside communication, difference from median"),
    *IN_STEPS,
)

RANKS_VIEW = View(
    name="ranks",
    title="Ranks side by side",
    description="duration and time outside communication of each step on each rank",
    table=Reduced(by_step, _side_by_side, lambda partials: needs_several_ranks(len(partials), WITHOUT_STEPS)),
    columns=RANKS_COLUMNS,
    explain_empty=lambda trace: needs_several_ranks(len(trace.meta.ranks), WITHOUT_STEPS),
)
