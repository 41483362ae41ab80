"""How far are the clocks of the ranks apart?

From the collectives that they share, against the lowest rank of those that collectives tie together and that agree: see
``clock_offsets``. Positive: the clock is ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.language.messages import Message, Sentence, Text, message
from perfkit_core.model.columns import MAX, RANK, Column, count, duration, text
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views.communication.clock_model import FOR_A_DRIFT, MOST_DRIFT_PPM
from perfkit_core.views.communication.clock_offsets import clock_offsets
from perfkit_core.views.communication.matching import POINT_TO_POINT
from perfkit_core.views.communication.partials import (
    Partial,
    all_collectives,
    all_ranks,
    one_rank_only,
    reduce,
    reduce_each,
)

_ORDER: Final = ("reference_rank", "offset_ns", "earliest_ns", "latest_ns", "drift_ppm", "matched", "unmatched",
                 "residual_ns", "max_residual_ns", "note")  # fmt: skip
_UNTIED: Final = message("no collectives were recorded that could tie the clocks of the ranks together")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a rank; see :data:`COLUMNS`. NA: it cannot be told."""
    return merge(reduce_each(trace, request), request)


def merge(partials: Sequence[Partial], request: ViewRequest) -> pd.DataFrame:
    """The table of any number of ranks; without rows for one, and where none recorded collectives."""
    if request.by:
        raise UsageError(f"{VIEW.name} cannot be grouped by {request.by[0]!r}", "it has a row for each rank")
    found = all_collectives(partials)
    clocks = clock_offsets(found, all_ranks(partials))
    clocks = clocks if len(clocks) > 1 and len(found) else clocks.iloc[:0]
    alone = (found["of_ranks"] == 1) & ~found["collective"].isin(POINT_TO_POINT)
    missing = found[alone].groupby("rank").size().reindex(clocks.index, fill_value=0)
    notes = [_note(rank, row) for rank, row in zip(clocks.index, clocks.to_dict("records"), strict=True)]
    sentences = [None if note is None else Sentence(note) for note in notes]
    result = clocks.assign(unmatched=missing.astype("int64"), note=pd.Series(sentences, clocks.index, dtype=object))
    return result.reset_index().astype({"rank": "Int64"})[["rank", *_ORDER]]


def _note(rank: int, row: Mapping[Any, Any]) -> Message | None:
    if not row["matched"]:
        return message("it shares no collective in which ranks wait for each other with a rank whose clock is known")
    if pd.isna(row["offset_ns"]):
        return _contradiction(row)
    if row["too_fast"]:
        return _too_fast()
    if row["rate"]:
        return message("its drift is taken away: the offset is that at the end of the first collective it shares")
    if pd.notna(row["contradicts"]):
        return message(
            "its collectives contradict those of rank {rank}: it is compared with ranks that agree with it",
            rank=row["contradicts"],
        )
    if row["reference_rank"] == rank:
        return message("the others are compared with this one")
    return None


def _contradiction(row: Mapping[Any, Any]) -> Message:
    if row["too_fast"]:
        return _too_fast()
    if row["may_drift"] and pd.isna(row["drift_ppm"]):
        return message(
            "its clock may drift: that is told from {count} collectives on, the first third of them a second and more "
            "before the last",
            count=FOR_A_DRIFT,
        )
    if row["may_drift"]:
        return message("its clock drifts, and not evenly enough for an offset")
    if row["numbered"]:
        return message(
            "collectives of the same number contradict each other: they are of different runs, or a clock was set"
        )
    return message("collectives matched by order contradict each other: parts are missing")


def _too_fast() -> Message:
    return message("its clock drifts by more than the {most} ppm that are taken away", most=MOST_DRIFT_PPM)


def _explain(trace: Trace) -> Text:
    return _UNTIED if len(trace.meta.ranks) > 1 else one_rank_only()


def _explain_merged(partials: Sequence[Partial]) -> Text:
    return _UNTIED if len(partials) > 1 else one_rank_only()


COLUMNS: Final = (
    RANK,
    text("reference_rank", "Reference rank", description="what its clock is compared with"),
    duration("offset_ns", "Offset"),
    duration("earliest_ns", "Earliest", description="the offset lies between this and the latest"),
    duration("latest_ns", "Latest"),
    Column("drift_ppm", "Drift ppm"),
    count("matched", "Matched", description="collectives that the offset is from"),
    count("unmatched", "Unmatched", description="collectives of no other rank"),
    duration("residual_ns", "Residual", description="how far apart ends stay"),
    duration("max_residual_ns", "Max residual", merge=MAX, of_capture=True),
    text("note", "Note", description="why there is no offset, or of which moment it is"),
)

VIEW = View(
    name="clocks",
    title="Clocks of the ranks",
    description="how far the clock of each rank is from that of the first one it is tied to by collectives",
    table=table,
    columns=COLUMNS,
    explain_empty=_explain,
    reduction=Reduction(reduce, merge, _explain_merged),
)
