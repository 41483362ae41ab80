"""How far are the clocks of the ranks apart?

Against the first rank, from the collectives that both recorded: see ``clock_offsets``. Positive: the clock is ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from perfkit_core.analyses.communication.clock_offsets import COLUMNS, clock_offsets
from perfkit_core.analyses.communication.matching import POINT_TO_POINT
from perfkit_core.analyses.communication.partials import Partial, all_collectives, reduce, reduce_each
from perfkit_core.errors import UsageError
from perfkit_core.language import in_english
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.trace import Trace

_ORDER: Final = ("offset_ns", "earliest_ns", "latest_ns", "drift_ppm", "matched", "unmatched", "residual_ns",
                 "max_residual_ns", "note")  # fmt: skip


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns rank, offset_ns (NA where it cannot be told), earliest_ns and latest_ns (what it must lie between),
    drift_ppm (over a second and more), matched and unmatched (collectives that the offset is from; those of no other
    rank), residual_ns, max_residual_ns (how far apart ends stay), note (why there is no offset)."""
    return merge(reduce_each(trace, request), request)


def merge(partials: Sequence[Partial], request: ViewRequest) -> pd.DataFrame:
    """The table of any number of ranks; without rows for one."""
    if request.by:
        raise UsageError(f"{VIEW.name} cannot be grouped by {request.by[0]!r}", "it has a row for each rank")
    found = all_collectives(partials)
    offsets = clock_offsets(found)
    offsets = offsets if len(offsets) > 1 else offsets.iloc[:0]
    alone = (found["of_ranks"] == 1) & ~found["collective"].isin(POINT_TO_POINT)
    missing = found[alone].groupby("rank").size().reindex(offsets.index, fill_value=0)
    result = offsets.assign(
        unmatched=missing.astype("int64"), note=pd.Series(_notes(offsets), offsets.index, dtype=object)
    ).reset_index()
    return result.astype({"rank": "Int64"})[["rank", *_ORDER]]


def _notes(offsets: pd.DataFrame) -> list[str | None]:
    return [_note(index == 0, row) for index, row in enumerate(offsets[list(COLUMNS)].to_dict("records"))]


def _note(first: bool, row: Mapping[Any, Any]) -> str | None:
    if first:
        return in_english("the others are compared with this one")
    if not row["matched"]:
        return in_english("no collective in common with a rank whose clock is known")
    if pd.isna(row["offset_ns"]):
        return in_english("collectives matched by order contradict each other: parts are missing")
    return None


def _explain(trace: Trace) -> str:
    if len(trace.meta.ranks) < 2:
        return in_english("one rank only was recorded: name the recordings of several ranks")
    return in_english("no collectives were recorded that could tie the clocks of the ranks together")


VIEW = View(
    name="clocks",
    title="Clocks of the ranks",
    description="how far the clock of each rank is from that of the first one, from the collectives they share",
    table=table,
    explain_empty=_explain,
    reduction=Reduction(reduce, merge),
)
