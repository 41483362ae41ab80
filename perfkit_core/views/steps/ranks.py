"""How do the ranks of a job compare, step by step?

A step in which ranks wait for each other takes all of them as long as the slowest: what tells them apart is their *own*
time, the step without communication that nothing hides (``exposed_communication`` of the partition). Medians are over
the ranks that recorded the step, of an even number the smaller one of the two in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.language.messages import Text, message
from perfkit_core.model.columns import DUR, RANK, duration, key
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views.select import in_steps
from perfkit_core.views.steps import partition
from perfkit_core.views.tables import stacked

_KEYS: Final = ("rank", "step", "dur_ns")
_COMPARED: Final = ("dur_over_median_ns", "own_time_ns", "own_time_over_median_ns")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """A row a rank and step; see :data:`COLUMNS`. Without rows where a single rank was recorded."""
    if len(trace.meta.ranks) < 2:
        in_steps(trace, request)  # a step that is not there is told all the same
        request = replace(request, steps=())
    return merge([reduce(trace, request)], request)


def reduce(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """The partition of the steps of a rank."""
    return partition.table(trace, replace(request, by=("step",)))


def merge(partials: Sequence[pd.DataFrame], request: ViewRequest) -> pd.DataFrame:
    """The table of any number of ranks."""
    steps = stacked(partials)
    if steps["rank"].nunique() < 2:
        steps = steps.iloc[:0]
    own = steps["dur_ns"] - steps["exposed_communication_ns"]
    compared = {
        "dur_over_median_ns": _over_median(steps, steps["dur_ns"]),
        "own_time_ns": own.astype("Int64"),
        "own_time_over_median_ns": _over_median(steps, own),
    }
    parts = [name for name in steps.columns if name not in _KEYS]
    return steps.assign(**compared)[[*_KEYS, *_COMPARED, *parts]].reset_index(drop=True)


def _over_median(steps: pd.DataFrame, times: pd.Series[int]) -> pd.Series[int]:
    """Unknown for a step of a single rank."""
    of_step = times.groupby(steps["step"])
    median = of_step.transform(lambda found: np.sort(found.to_numpy(np.int64))[(len(found) - 1) // 2])
    several = steps.groupby("step")["rank"].transform("nunique") > 1
    return (times - median).astype("Int64").where(several)


def _explain(trace: Trace) -> Text:
    return _why(len(trace.meta.ranks))


def _why(ranks: int) -> Text:
    if ranks < 2:
        return message("one rank only was recorded: name the recordings of several ranks")
    return message(
        "no training steps were recorded: give the profiler a schedule, and call its step() after each iteration"
    )


COLUMNS: Final = (
    RANK,
    key("step", "Step"),
    DUR,
    duration("dur_over_median_ns", "Duration over median", description="less the median over the ranks"),
    duration("own_time_ns", "Own time", description="without communication that nothing hides"),
    duration("own_time_over_median_ns", "Own time over median"),
    *partition.IN_STEPS,
)

VIEW = View(
    name="ranks",
    title="Ranks side by side",
    description="each step of each rank: how long it took, and its own time, without communication that nothing hides",
    table=table,
    columns=COLUMNS,
    explain_empty=_explain,
    reduction=Reduction(reduce, merge, lambda partials: _why(len(partials))),
)
