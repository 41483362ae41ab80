"""View ``clocks``: the offset of each rank's clock from the clock of its reference rank.

A positive offset means that the rank's clock is ahead of the reference. Offsets are computed from collectives that
ranks share (``clock_model``). Ranks have different references if no collectives connect them, directly or through other
ranks. In this case, :func:`aligned` uses the reference that has the most ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.base.language.messages import Message, Sentence, message
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import MAX, RANK, Column, count, duration, text
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication import instances
from perfkit_core.views.communication.clock_model import FOR_A_DRIFT, MOST_DRIFT_PPM, ahead_ns, clock_offsets
from perfkit_core.views.tables import no_rows

_TYPES: Final = {"rank": "Int64", "reference_rank": "Int64", "offset_ns": "Int64", "earliest_ns": "Int64",
                 "latest_ns": "Int64", "drift_ppm": "Float64", "matched": "int64", "unmatched": "int64",
                 "residual_ns": "Int64", "max_residual_ns": "Int64", "note": "object"}  # fmt: skip
_UNTIED: Final = message("no collectives were recorded that could align the clocks of the ranks")


def merge(partials: Sequence[instances.Partial], request: ViewRequest) -> pd.DataFrame:
    """Return one row per rank, with :data:`COLUMNS`. Unknown numbers are NA."""
    if len(instances.all_ranks(partials)) < 2:
        return no_rows(_TYPES)
    collectives = instances.all_collectives(partials)
    clocks = clock_offsets(collectives, instances.all_ranks(partials))
    clocks = clocks if len(clocks) > 1 and len(collectives) else clocks.iloc[:0]
    alone = (collectives["of_ranks"] == 1) & ~collectives["collective"].isin(instances.POINT_TO_POINT)
    missing = collectives[alone].groupby("rank").size().reindex(clocks.index, fill_value=0)
    notes = [_note(rank, row) for rank, row in zip(clocks.index, clocks.to_dict("records"), strict=True)]
    sentences = [None if note is None else Sentence(note) for note in notes]
    result = clocks.assign(unmatched=missing, note=pd.Series(sentences, clocks.index, dtype=object))
    return result.reset_index()[list(_TYPES)].astype(_TYPES)


def _note(rank: int, row: Mapping[Any, Any]) -> Message | None:
    unknown = pd.isna(row["offset_ns"])
    if not row["matched"]:
        return message("no synchronous collective (such as all_reduce) connects this rank with a reference rank")
    if row["too_fast"]:
        return message("its clock drifts by more than {most} ppm, so the drift is not corrected", most=MOST_DRIFT_PPM)
    if unknown and row["may_drift"] and pd.isna(row["drift_ppm"]):
        return message(
            "its clock may drift: to measure the drift, {count} collectives are needed, with at least 1 s between the "
            "first third and the last third of the collectives",
            count=FOR_A_DRIFT,
        )
    if unknown and row["may_drift"]:
        return message("its clock drifts too unevenly for an offset")
    if unknown and row["numbered"]:
        return message(
            "collectives with the same number contradict each other: they belong to different runs or a clock was reset"
        )
    if unknown:
        return message("collectives matched by order contradict each other: some collectives were not recorded")
    if row["rate"]:
        return message("the drift is corrected: the offset shown is that at the end of the first shared collective")
    if pd.notna(row["contradicts"]):
        return message(
            "this rank's clock contradicts the clock of rank {rank}: this rank is compared only with ranks whose "
            "clocks agree with its own clock",
            rank=row["contradicts"],
        )
    return message("reference: other ranks are compared with this rank") if row["reference_rank"] == rank else None


COLUMNS: Final = (
    RANK,
    text("reference_rank", "Reference rank", "rank whose clock is the reference"),
    duration("offset_ns", "Offset"),
    duration("earliest_ns", "Earliest", "lower bound of the offset"),
    duration("latest_ns", "Latest", "upper bound of the offset"),
    Column("drift_ppm", "Drift ppm"),
    count("matched", "Matched", "collectives that the offset is computed from"),
    count("unmatched", "Unmatched", "collectives that no other rank recorded"),
    duration(
        "residual_ns",
        "Residual",
        "median difference of a collective's ends on this rank and the reference rank, after alignment",
    ),
    duration("max_residual_ns", "Max residual", merge=MAX, over="capture"),
    text("note", "Note", "why the offset is unknown, or what limits it"),
)

VIEW = View(
    name="clocks",
    title="Clocks of the ranks",
    description="offset of each rank's clock from the clock of its reference rank, measured at shared collectives",
    table=instances.compared(
        instances.reduce_each, merge, lambda partials: instances.needs_several_ranks(len(partials), _UNTIED)
    ),
    columns=COLUMNS,
    explain_empty=lambda trace: instances.needs_several_ranks(len(trace.meta.ranks), _UNTIED),
)

_LEAST_NS: Final = 500
"""Smaller offsets are not reported, because the end times of collectives scatter by as much."""
_MOST_LISTED: Final = 8


def aligned(trace: Trace) -> Trace:
    """Return the trace with aligned clocks, and with data-quality warnings about the alignment. The starts of a rank's
    events are shifted by the offset of its clock. If the drift is corrected, durations and self times change too. A
    rank without an offset from the common reference keeps its recorded times."""
    partials = instances.reduce_each(trace, ViewRequest())
    clocks = clock_offsets(instances.all_collectives(partials), instances.all_ranks(partials))
    linked = clocks[clocks["offset_ns"].notna()]
    if clocks["reference_rank"].isna().all():
        text = message("nothing to align: no collectives of several ranks were recorded")
        return trace.with_findings(Finding("clocks-not-aligned", text))
    ranks, size = np.unique(linked["reference_rank"].to_numpy(np.int64), return_counts=True)
    # If several references have equally many ranks, argmax returns the lowest reference.
    common = linked[linked["reference_rank"] == ranks[size.argmax()]]

    rank, recorded, dur = trace.ints("rank"), trace.ints("start_ns"), trace.ints("dur_ns")
    start = recorded - ahead_ns(common, rank, recorded)
    moved = trace.with_columns(start_ns=pa.array(start))
    if common["rate"].any():
        end = recorded + dur
        passed = end - ahead_ns(common, rank, end) - start
        self_ns = trace.ints("self_ns")  # negative if unknown
        gained = np.rint((passed - dur) * (self_ns / np.maximum(dur, 1))).astype(np.int64)
        moved = moved.with_ints(dur_ns=passed, self_ns=np.where(self_ns < 0, self_ns, self_ns + gained))
        dur = passed
    window = (int(start.min()), int((start + dur).max())) if len(start) else None
    return moved.with_meta(window_ns=window).with_findings(*_findings(clocks, linked, common))


def _findings(clocks: pd.DataFrame, linked: pd.DataFrame, common: pd.DataFrame) -> Iterator[Finding]:
    reference = common.index[0]
    if len(common) > 1:
        offsets = common["offset_ns"].astype("int64").iloc[1:]
        behind, ahead = -int(offsets.min()), int(offsets.max())
        if behind >= _LEAST_NS and ahead >= _LEAST_NS:
            deviation = message("were up to {behind:ns} behind or up to {ahead:ns} ahead", behind=behind, ahead=ahead)
        elif behind >= _LEAST_NS:
            deviation = message("were up to {behind:ns} behind", behind=behind)
        elif ahead >= _LEAST_NS:
            deviation = message("were up to {ahead:ns} ahead", ahead=ahead)
        else:
            deviation = message("agreed with this clock")
        text = message(
            "clocks are aligned with the clock of rank {rank} at shared collectives. Before alignment, the other "
            "clocks {others}",
            rank=reference, others=deviation,
        )  # fmt: skip
        yield Finding("clocks-aligned", text, note=True)
    unknown, elsewhere = clocks.index.difference(linked.index).tolist(), linked.index.difference(common.index).tolist()
    if unknown:
        text = message(
            "the clocks of {unknown} of {count} ranks could not be aligned: {ranks} (--view clocks shows why)",
            unknown=len(unknown), count=len(clocks), ranks=_listed(unknown),
        )  # fmt: skip
        yield Finding("clocks-not-aligned", text)
    if elsewhere:
        text = message(
            "the clocks of {elsewhere} of {count} ranks were not aligned ({ranks}): no shared collectives connect "
            "them with rank {reference} (see reference_rank in --view clocks)",
            elsewhere=len(elsewhere), count=len(clocks), ranks=_listed(elsewhere), reference=reference,
        )  # fmt: skip
        yield Finding("clocks-not-aligned", text)


def _listed(ranks: list[int]) -> Message:
    first, more = ", ".join(map(str, ranks[:_MOST_LISTED])), len(ranks) - _MOST_LISTED
    if more <= 0:
        return message("rank {ranks}", ranks=first)
    return message("ranks {ranks} and {more} more", ranks=first, more=more)
