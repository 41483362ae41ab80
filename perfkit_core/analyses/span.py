"""The time that ratios are divided by: the union of the steps, or the extent of the events where there are no steps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core import intervals
from perfkit_core.analyses.once import once
from perfkit_core.schema import STEP
from perfkit_core.trace import BoolArray, IntArray, Trace


@once
def rank_codes(trace: Trace) -> tuple[IntArray, int]:
    """A group number for each event's rank (unknown ranks are one), and how many there are."""
    codes, ranks = pd.factorize(trace.ints("rank"), sort=True)
    return codes.astype(np.int64, copy=False), len(ranks)


def span(trace: Trace, chosen: BoolArray) -> intervals.Intervals:
    """Union of the chosen steps; from the first start to the last end of the chosen events when there is no step.

    The events should be of one rank, as clocks differ between ranks.
    """
    start, end = trace.ints("start_ns"), trace.end_ns
    steps = chosen & trace.rows("kind", STEP) & trace.host
    if steps.any():
        return intervals.union(start[steps], end[steps])
    if not chosen.any():
        return intervals.EMPTY
    return intervals.union(start[chosen].min(keepdims=True), end[chosen].max(keepdims=True))


def span_ns(trace: Trace, chosen: BoolArray) -> int:
    """Length of the :func:`span` of each rank, summed over ranks."""
    rank, count = rank_codes(trace)
    return sum(intervals.length(span(trace, chosen & (rank == one))) for one in range(count))


def union_ns(trace: Trace, chosen: BoolArray) -> int:
    """Time covered by the chosen events: a union within each rank, summed over ranks (their clocks differ)."""
    rank, count = rank_codes(trace)
    start, end = trace.ints("start_ns")[chosen], trace.end_ns[chosen]
    return int(intervals.union_length_by(rank[chosen], count, start, end).sum())
