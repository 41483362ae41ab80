"""The time that ratios are divided by: the union of the steps, or the extent of the events where there are no steps."""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms import groupby, intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace, once


def rank_codes(trace: Trace) -> tuple[IntArray, int]:
    """A group number for each event's rank (unknown ranks are one), and how many there are."""
    code, found = _coded(trace)
    return code, len(found)


def ranks(trace: Trace) -> IntArray:
    """The distinct ranks as in the column (-1: unknown), ascending."""
    return _coded(trace)[1]


@once
def _coded(trace: Trace) -> tuple[IntArray, IntArray]:
    code, first = groupby.sorted_codes([trace.ints("rank")], len(trace))
    return code, trace.ints("rank")[first]


def rows_of_rank(trace: Trace, rank: int) -> IntArray | slice:
    """The rows of a rank, as in the column (-1: unknown), in their order: what an array of all rows is indexed by."""
    ranks, order, bounds = _by_rank(trace)
    at = int(np.searchsorted(ranks, rank))
    if at == len(ranks) or ranks[at] != rank:
        return slice(0)
    return slice(None) if len(ranks) == 1 else order[bounds[at] : bounds[at + 1]]


@once
def _by_rank(trace: Trace) -> tuple[IntArray, IntArray, IntArray]:
    """The ranks, the rows sorted by them (none where there is one rank), and where those of each begin and end."""
    code, count = rank_codes(trace)
    order = groupby.stable_order(code, count) if count > 1 else np.empty(0, np.int64)
    bounds = np.append(0, np.cumsum(np.bincount(code, minlength=count)))
    return ranks(trace), order, bounds


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


def spans(trace: Trace, chosen: BoolArray) -> tuple[IntArray, IntArray, IntArray]:
    """Of each rank what its :func:`span` is the union of: group number of the rank, start and end of each interval."""
    rank, count = rank_codes(trace)
    rows = np.flatnonzero(chosen & trace.rows("kind", STEP) & trace.host)
    without = np.ones(count, np.bool_)
    without[rank[rows]] = False
    start, end = trace.ints("start_ns"), trace.end_ns
    if not without.any():
        return rank[rows], start[rows], end[rows]
    others = np.flatnonzero(chosen & without[rank])
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, rank[others], start[others])
    np.maximum.at(last, rank[others], end[others])
    some = np.flatnonzero(last >= first)
    return np.append(rank[rows], some), np.append(start[rows], first[some]), np.append(end[rows], last[some])


def span_ns(trace: Trace, chosen: BoolArray) -> int:
    """Length of the :func:`span` of each rank, summed over ranks."""
    group, start, end = spans(trace, chosen)
    return int(intervals.union_length_by(group, rank_codes(trace)[1], start, end).sum())


def union_ns(trace: Trace, chosen: BoolArray) -> int:
    """Time covered by the chosen events: a union within each rank, summed over ranks (their clocks differ)."""
    rank, count = rank_codes(trace)
    start, end = trace.ints("start_ns")[chosen], trace.end_ns[chosen]
    return int(intervals.union_length_by(rank[chosen], count, start, end).sum())
