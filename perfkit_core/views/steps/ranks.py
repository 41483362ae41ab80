"""View ``ranks``: the steps of all ranks of a job, side by side.

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

from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.trace.assembly.steps import WITHOUT_STEPS
from perfkit_core.trace.model.columns import duration
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select, tables
from perfkit_core.views.communication.instances import needs_several_ranks
from perfkit_core.views.steps import partition
from perfkit_core.views.steps.step_rows import OF_STEP

_KEYS: Final = ("rank", "step", "dur_ns")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank and step, with :data:`COLUMNS`. The table is empty if only one rank was recorded."""
    if len(trace.meta.ranks) < 2:
        select.in_steps(trace, request)  # raises UsageError for a step that was not recorded
        request = replace(request, steps=())
    return merge([partition.by_step(trace, request)], request)


def merge(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
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


COLUMNS: Final = (
    *OF_STEP,
    duration("dur_over_median_ns", "Duration less median", description="duration less the median over the ranks"),
    duration("own_time_ns", "Time outside communication", description="duration less exposed communication"),
    duration("own_time_over_median_ns", "Time outside communication, difference from median"),
    *partition.IN_STEPS,
)

VIEW = View(
    name="ranks",
    title="Ranks side by side",
    description="duration and time outside communication of each step on each rank",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: needs_several_ranks(len(trace.meta.ranks), WITHOUT_STEPS),
    reduction=Reduction(partition.by_step, merge, lambda partials: needs_several_ranks(len(partials), WITHOUT_STEPS)),
)
