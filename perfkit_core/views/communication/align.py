"""The ranks of a trace on one clock, by the collectives they share (``clock_offsets``).

Of ranks that nothing ties to others there are several clocks: the one to which most ranks are tied is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.language.messages import Message, message
from perfkit_core.model.meta import Finding
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.communication.clock_offsets import ahead_ns, clock_offsets
from perfkit_core.views.communication.partials import all_collectives, all_ranks, reduce_each

_LEAST_NS: Final = 500


def aligned(trace: Trace) -> Trace:
    """The trace with the starts of each rank less the offset of its clock, and a finding that says so.

    A rank that cannot be set on the clock of the others keeps its times, with a finding. Durations and everything else
    stay, but the times of a clock whose drift is taken away: they pass as on the clock it is set to.
    """
    partials = reduce_each(trace, ViewRequest())
    clocks = clock_offsets(all_collectives(partials), all_ranks(partials))
    if clocks["reference_rank"].isna().all():
        text = message("nothing to align: no collectives of several ranks were recorded")
        return trace.with_findings(Finding("clocks-not-aligned", text))
    known = clocks[clocks["offset_ns"].notna()]
    told = _largest(known)
    found = [Finding("clocks-aligned", _shifted(told["offset_ns"].astype("int64")))] if len(told) > 1 else []
    return _moved(trace, told).with_findings(*found, *_not_moved(clocks, known, told))


def _not_moved(clocks: pd.DataFrame, known: pd.DataFrame, told: pd.DataFrame) -> Iterator[Finding]:
    """Whose clocks cannot be told, and whose are told against others only than the one that is taken."""
    unknown, elsewhere = clocks.index.difference(known.index).tolist(), known.index.difference(told.index).tolist()
    if unknown:
        text = message(
            "the clocks of {unknown} of {count} ranks could not be aligned: {ranks} (--view clocks tells why)",
            unknown=len(unknown), count=len(clocks), ranks=_listed(unknown),
        )  # fmt: skip
        yield Finding("clocks-not-aligned", text)
    if elsewhere:
        text = message(
            "{elsewhere} of {count} ranks keep their times: {ranks}: no collectives set their clocks to that of rank "
            "{reference}, but to others (reference_rank of --view clocks)",
            elsewhere=len(elsewhere), count=len(clocks), ranks=_listed(elsewhere), reference=told.index[0],
        )  # fmt: skip
        yield Finding("clocks-not-aligned", text)


def _largest(told: pd.DataFrame) -> pd.DataFrame:
    """The clocks that are compared with the rank that most are compared with; of several such with the lowest."""
    ranks, count = np.unique(told["reference_rank"].to_numpy(np.int64), return_counts=True)
    together: pd.DataFrame = told[told["reference_rank"] == ranks[count.argmax()]]
    return together


def _moved(trace: Trace, clocks: pd.DataFrame) -> Trace:
    rank, recorded, dur = trace.ints("rank"), trace.ints("start_ns"), trace.ints("dur_ns")
    start = recorded - ahead_ns(clocks, rank, recorded)
    moved = trace.with_columns(start_ns=pa.array(start))
    if clocks["rate"].any():
        end = recorded + dur
        passed = end - ahead_ns(clocks, rank, end) - start
        moved = moved.with_ints(dur_ns=passed, self_ns=_in_proportion(trace.ints("self_ns"), dur, passed))
        dur = passed
    window = (int(start.min()), int((start + dur).max())) if len(start) else None
    return moved.with_meta(window_ns=window)


def _in_proportion(part: IntArray, whole: IntArray, changed: IntArray) -> IntArray:
    """The part of a time that has changed by some millionths; negative (unknown) stays."""
    more = np.rint((changed - whole) * (part / np.maximum(whole, 1))).astype(np.int64)
    return np.where(part < 0, part, part + more)


def _shifted(offsets: pd.Series[int]) -> Message:
    """How the other clocks went, no finer than the ends of a collective tell."""
    low, high = int(offsets.iloc[1:].min()), int(offsets.iloc[1:].max())
    rank, behind, ahead = offsets.index[0], low <= -_LEAST_NS, high >= _LEAST_NS
    if behind and ahead:
        return message(
            "clocks are set to that of rank {rank}, by common collectives: the others were up to {behind:ns} behind "
            "or up to {ahead:ns} ahead",
            rank=rank,
            behind=abs(low),
            ahead=abs(high),
        )
    if behind:
        return message(
            "clocks are set to that of rank {rank}, by common collectives: the others were up to {behind:ns} behind",
            rank=rank,
            behind=abs(low),
        )
    if ahead:
        return message(
            "clocks are set to that of rank {rank}, by common collectives: the others were up to {ahead:ns} ahead",
            rank=rank,
            ahead=abs(high),
        )
    return message("clocks are set to that of rank {rank}, by common collectives: the others were as it is", rank=rank)


def _listed(ranks: list[int], most: int = 8) -> Message:
    first = ", ".join(map(str, ranks[:most]))
    if len(ranks) <= most:
        return message("rank {ranks}", ranks=first)
    return message("rank {ranks} and {more} more", ranks=first, more=len(ranks) - most)
