"""What kinds of events are there, and how much time do they cover?

Time is a union over threads and streams, so nothing is counted twice within a row; rows of different kinds overlap.
``by=("category",)`` counts the framework's own event types. With ``native`` the table is Paddle's (see
``overview_native``).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import grouped, intervals
from perfkit_core.analyses.select import in_steps, selected
from perfkit_core.analyses.span import rank_codes, span_ns
from perfkit_core.analyses.step import overview_native
from perfkit_core.analyses.tables import ratio
from perfkit_core.errors import UsageError
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace import Trace

GROUPINGS = ("category",)


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns kind (or category), place ("host" or "device"), calls, time_ns, ratio (to the union of the steps)."""
    column = _column(request)
    if request.native:
        return overview_native.table(trace, request)
    chosen = selected(trace, request)
    codes = trace.codes(column)
    rank, ranks = rank_codes(trace)
    group = codes.codes + ~trace.host * np.int32(len(codes.values))
    group[~chosen | (codes.codes < 0)] = -1
    calls = grouped.sums(group, 2 * len(codes.values), np.ones(len(group), np.bool_))
    if ranks > 1:
        group = np.where(group < 0, -1, group * np.int64(ranks) + rank)
    count = 2 * len(codes.values) * ranks
    time = intervals.union_length_by(group, count, trace.ints("start_ns"), trace.end_ns)
    result = pd.DataFrame(
        {
            column: pd.Series(codes.values * 2, dtype=object),
            "place": ["host"] * len(codes.values) + ["device"] * len(codes.values),
            "calls": calls,
            "time_ns": time.reshape(2 * len(codes.values), ranks).sum(axis=1),
        }
    )
    result["ratio"] = ratio(result["time_ns"], span_ns(trace, in_steps(trace, request)))
    return result[result["calls"] > 0].reset_index(drop=True)


def _column(request: ViewRequest) -> str:
    unknown = set(request.by) - set(GROUPINGS)
    if unknown:
        raise UsageError(f"the overview cannot be grouped by {sorted(unknown)[0]!r}", f"known: {', '.join(GROUPINGS)}")
    return "category" if request.by else "kind"


VIEW = View(
    name="overview",
    title="Overview by kind of event",
    description="calls and covered time of each kind of event, outside the steps too where none are asked for; the "
    "share is of the step time",
    table=table,
    groupings=GROUPINGS,
    order="time_ns",
    explain_empty=lambda trace: in_english("no events were recorded"),
    native=True,
    per_step=("calls", "time_ns"),
)
