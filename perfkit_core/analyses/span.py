"""The time that ratios are divided by: the union of the steps, or of the whole recording where there are none."""

from __future__ import annotations

import numpy as np

from perfkit_core import intervals
from perfkit_core.schema import STEP
from perfkit_core.trace import BoolArray, IntArray, Trace


def rank_codes(trace: Trace) -> tuple[IntArray, int]:
    """A group number for each event's rank (unknown ranks are one), and how many there are."""
    ranks, codes = np.unique(trace.ints("rank"), return_inverse=True)
    return codes.astype(np.int64), len(ranks)


def span_ns(trace: Trace, chosen: BoolArray) -> int:
    """Union of the chosen steps within each rank, summed over ranks; of all chosen events when there is no step."""
    steps = chosen & trace.rows("kind", STEP) & trace.host
    if steps.any():
        return union_ns(trace, steps)
    rank, count = rank_codes(trace)
    start, end = trace.ints("start_ns")[chosen], trace.end_ns[chosen]
    low = np.full(count, np.iinfo(np.int64).max)
    high = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, rank[chosen], start)
    np.maximum.at(high, rank[chosen], end)
    return int(np.maximum(high - low, 0)[np.unique(rank[chosen])].sum())


def union_ns(trace: Trace, chosen: BoolArray) -> int:
    """Time covered by the chosen events: a union within each rank, summed over ranks (their clocks differ)."""
    rank, count = rank_codes(trace)
    return int(
        intervals.union_length_by(rank[chosen], count, trace.ints("start_ns")[chosen], trace.end_ns[chosen]).sum()
    )
