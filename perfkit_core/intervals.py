"""Algebra of time intervals: arrays of starts and ends in integer nanoseconds, half open [start, end).

A set is a pair of int64 arrays, shape (n,), sorted and disjoint, as :func:`union` returns it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Intervals = tuple[IntArray, IntArray]

EMPTY: Intervals = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: IntArray, ends: IntArray) -> Intervals:
    """Merge intervals that overlap or touch. Empty and reversed ones (end ≤ start) count for nothing."""
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    first = np.append(True, starts[1:] > reach[:-1])
    last = np.append(first[1:], True)
    return starts[first], reach[last]


def length(intervals: Intervals) -> int:
    """Total nanoseconds covered by a disjoint set."""
    return int((intervals[1] - intervals[0]).sum())


def union_length(starts: IntArray, ends: IntArray) -> int:
    """Nanoseconds covered by at least one of the intervals."""
    return length(union(starts, ends))


def union_length_by(groups: IntArray, count: int, starts: IntArray, ends: IntArray) -> IntArray:
    """:func:`union_length` within each group 0 ≤ g < count; shape (count,). One sort for all groups."""
    result = np.zeros(count, np.int64)
    keep = (ends > starts) & (groups >= 0)
    groups, starts, ends = groups[keep], starts[keep], ends[keep]
    if not len(starts):
        return result
    origin = int(starts.min())
    span = int(ends.max()) - origin + 1
    if count > np.iinfo(np.int64).max // span:  # the shifted clocks would not fit into 64 bits
        for group in np.unique(groups):
            result[group] = union_length(starts[groups == group], ends[groups == group])
        return result
    shift = groups.astype(np.int64) * span - origin  # lays the groups one after the other on one clock
    merged_starts, merged_ends = union(starts + shift, ends + shift)
    np.add.at(result, merged_starts // span, merged_ends - merged_starts)
    return result


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """What two disjoint sets have in common."""
    if not len(a[0]) or not len(b[0]):
        return EMPTY
    edges = np.concatenate([a[0], a[1], b[0], b[1]])
    change = np.concatenate([np.ones(len(a[0])), -np.ones(len(a[1])), np.ones(len(b[0])), -np.ones(len(b[1]))])
    order = np.lexsort((change, edges))  # ends before starts, so that touching sets share nothing
    depth = np.cumsum(change[order])
    edges = edges[order]
    both = np.flatnonzero(depth == 2)
    return union(edges[both], edges[both + 1])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """What is in ``a`` and not in ``b`` (both disjoint sets)."""
    if not len(a[0]) or not len(b[0]):
        return a
    low, high = min(a[0][0], b[0][0]), max(a[1][-1], b[1][-1])
    gaps = (np.append(low, b[1]), np.append(b[0], high))
    return intersect(a, union(*gaps))
