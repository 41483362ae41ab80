"""View ``clocks``: offset of each rank's clock from its reference rank (positive: ahead); and alignment of a trace.

Offsets come from shared collectives (``clock_model``). If ranks are not all connected there are several clocks;
alignment uses the one with most ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.errors import UsageError
from perfkit_core.language.messages import Message, Sentence, message
from perfkit_core.model.columns import MAX, RANK, Column, count, duration, text
from perfkit_core.model.meta import Finding
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import Reduction, View, ViewRequest
from perfkit_core.views.communication import instances
from perfkit_core.views.communication.clock_model import FOR_A_DRIFT, MOST_DRIFT_PPM, ahead_ns, clock_offsets

_ORDER: Final = ("reference_rank", "offset_ns", "earliest_ns", "latest_ns", "drift_ppm", "matched", "unmatched",
                 "residual_ns", "max_residual_ns", "note")  # fmt: skip
_UNTIED: Final = message("no collectives were recorded that could align the clocks of the ranks")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank, with :data:`COLUMNS`. NA: unknown."""
    return merge(instances.reduce_each(trace, request), request)


def merge(partials: Sequence[instances.Partial], request: ViewRequest) -> pd.DataFrame:
    if request.by:
        raise UsageError(f"{VIEW.name} cannot be grouped by {request.by[0]!r}", "it has a row for each rank")
    collectives = instances.all_collectives(partials)
    clocks = clock_offsets(collectives, instances.all_ranks(partials))
    clocks = clocks if len(clocks) > 1 and len(collectives) else clocks.iloc[:0]
    alone = (collectives["of_ranks"] == 1) & ~collectives["collective"].isin(instances.POINT_TO_POINT)
    missing = collectives[alone].groupby("rank").size().reindex(clocks.index, fill_value=0)
    notes = [_note(rank, row) for rank, row in zip(clocks.index, clocks.to_dict("records"), strict=True)]
    sentences = [None if note is None else Sentence(note) for note in notes]
    result = clocks.assign(unmatched=missing.astype("int64"), note=pd.Series(sentences, clocks.index, dtype=object))
    return result.reset_index().astype({"rank": "Int64"})[["rank", *_ORDER]]


def _note(rank: int, row: Mapping[Any, Any]) -> Message | None:
    """Return why a rank has no offset, or a limitation of its offset."""
    unknown = pd.isna(row["offset_ns"])
    if not row["matched"]:
        return message("it shares no collective in which ranks wait for each other with a rank whose clock is known")
    if row["too_fast"]:
        return message("its clock drifts by more than {most} ppm, the most that is corrected", most=MOST_DRIFT_PPM)
    if unknown and row["may_drift"] and pd.isna(row["drift_ppm"]):
        return message(
            "its clock may drift: measuring that needs {count} collectives, with a second or more between the first "
            "third of them and the last",
            count=FOR_A_DRIFT,
        )
    if unknown and row["may_drift"]:
        return message("its clock drifts too unevenly for an offset")
    if unknown and row["numbered"]:
        return message(
            "collectives of the same number contradict each other: they are of different runs, or a clock was set"
        )
    if unknown:
        return message("collectives matched by order contradict each other: parts are missing")
    if row["rate"]:
        return message("its drift is corrected: the offset is that at the end of the first collective it shares")
    if pd.notna(row["contradicts"]):
        return message(
            "its collectives contradict those of rank {rank}: it is compared with ranks that agree with it",
            rank=row["contradicts"],
        )
    return message("the others are compared with this one") if row["reference_rank"] == rank else None


COLUMNS: Final = (
    RANK,
    text("reference_rank", "Reference rank", description="what its clock is compared with"),
    duration("offset_ns", "Offset"),
    duration("earliest_ns", "Earliest", description="the offset lies between this and the latest"),
    duration("latest_ns", "Latest"),
    Column("drift_ppm", "Drift ppm"),
    count("matched", "Matched", description="collectives that the offset is from"),
    count("unmatched", "Unmatched", description="collectives of no other rank"),
    duration("residual_ns", "Residual", description="remaining distance of the ends"),
    duration("max_residual_ns", "Max residual", merge=MAX, of_capture=True),
    text("note", "Note", description="why there is no offset, or its moment"),
)

VIEW = View(
    name="clocks",
    title="Clocks of the ranks",
    description="offset of the clock of each rank from that of the first rank it is linked to by collectives",
    table=table,
    columns=COLUMNS,
    explain_empty=lambda trace: instances.needs_several_ranks(len(trace.meta.ranks), _UNTIED),
    reduction=Reduction(
        instances.reduce, merge, lambda partials: instances.needs_several_ranks(len(partials), _UNTIED)
    ),
)

_LEAST_NS: Final = 500
"""Smaller offsets are not reported, as the ends of collectives do not resolve them."""
_MOST_LISTED: Final = 8


def aligned(trace: Trace) -> Trace:
    """Return the trace with all ranks on one clock, with findings that say so. Starts are shifted by the offset of the
    rank's clock; if a drift is corrected, durations and self times change too. A rank without an offset to the common
    clock keeps its times."""
    partials = instances.reduce_each(trace, ViewRequest())
    clocks = clock_offsets(instances.all_collectives(partials), instances.all_ranks(partials))
    known = clocks[clocks["offset_ns"].notna()]
    if clocks["reference_rank"].isna().all():
        text = message("nothing to align: no collectives of several ranks were recorded")
        return trace.with_findings(Finding("clocks-not-aligned", text))
    ranks, size = np.unique(known["reference_rank"].to_numpy(np.int64), return_counts=True)
    common = known[
        known["reference_rank"] == ranks[size.argmax()]
    ]  # of equally large parts, the one with the lowest rank

    rank, recorded, dur = trace.ints("rank"), trace.ints("start_ns"), trace.ints("dur_ns")
    start = recorded - ahead_ns(common, rank, recorded)
    moved = trace.with_columns(start_ns=pa.array(start))
    if common["rate"].any():
        end = recorded + dur
        passed = end - ahead_ns(common, rank, end) - start
        own = trace.ints("self_ns")
        gained = np.rint((passed - dur) * (own / np.maximum(dur, 1))).astype(np.int64)
        moved = moved.with_ints(dur_ns=passed, self_ns=np.where(own < 0, own, own + gained))  # negative: unknown
        dur = passed
    window = (int(start.min()), int((start + dur).max())) if len(start) else None
    return moved.with_meta(window_ns=window).with_findings(*_findings(clocks, known, common))


def _findings(clocks: pd.DataFrame, known: pd.DataFrame, common: pd.DataFrame) -> Iterator[Finding]:
    reference = common.index[0]
    if len(common) > 1:
        offsets = common["offset_ns"].astype("int64").iloc[1:]
        behind, ahead = -int(offsets.min()), int(offsets.max())
        if behind >= _LEAST_NS and ahead >= _LEAST_NS:
            others = message("were up to {behind:ns} behind or up to {ahead:ns} ahead", behind=behind, ahead=ahead)
        elif behind >= _LEAST_NS:
            others = message("were up to {behind:ns} behind", behind=behind)
        elif ahead >= _LEAST_NS:
            others = message("were up to {ahead:ns} ahead", ahead=ahead)
        else:
            others = message("agreed with it")
        text = message(
            "clocks are set to that of rank {rank}, by common collectives: the others {others}",
            rank=reference, others=others,
        )  # fmt: skip
        yield Finding("clocks-aligned", text)
    unknown, elsewhere = clocks.index.difference(known.index).tolist(), known.index.difference(common.index).tolist()
    if unknown:
        text = message(
            "the clocks of {unknown} of {count} ranks could not be aligned: {ranks} (--view clocks shows why)",
            unknown=len(unknown), count=len(clocks), ranks=_listed(unknown),
        )  # fmt: skip
        yield Finding("clocks-not-aligned", text)
    if elsewhere:
        text = message(
            "{elsewhere} of {count} ranks keep their times: {ranks}: collectives link their clocks to other ranks, "
                "not to rank {reference} (reference_rank of --view clocks)",
            elsewhere=len(elsewhere), count=len(clocks), ranks=_listed(elsewhere), reference=reference,
        )  # fmt: skip
        yield Finding("clocks-not-aligned", text)


def _listed(ranks: list[int]) -> Message:
    first, more = ", ".join(map(str, ranks[:_MOST_LISTED])), len(ranks) - _MOST_LISTED
    if more <= 0:
        return message("rank {ranks}", ranks=first)
    return message("rank {ranks} and {more} more", ranks=first, more=more)
