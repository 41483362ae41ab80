"""Algebra of half-open time intervals [start, end) in integer nanoseconds. A set of intervals is a pair of int64
arrays, the starts and the ends, each of shape (n,). Its intervals are sorted and disjoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby
from perfkit_core.base.algorithms.arrays import Int32Array, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled

Intervals = tuple[IntArray, IntArray]

_BEFORE_ALL: Final = np.iinfo(np.int64).min
EMPTY: Intervals = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: IntArray, ends: IntArray) -> Intervals:
    """Return the union of intervals, merged where they overlap or touch. Ignores intervals with end ≤ start."""
    starts, ends = _by_start(starts, ends)
    return _united_rows(np.arange(len(starts)), starts, ends)


def union_of(rows: IntArray, starts: IntArray, ends: IntArray) -> Intervals:
    """Return the :func:`union` of the intervals in ``rows``."""
    return _united_rows(rows, starts, ends) if _is_sorted(starts, rows) else union(starts[rows], ends[rows])


def _united_rows(rows: IntArray, starts: IntArray, ends: IntArray) -> Intervals:
    first, last = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    count = _united(rows, starts, ends, first, last)
    return first[:count].copy(), last[:count].copy()


def length(intervals: Intervals) -> int:
    return int((intervals[1] - intervals[0]).sum())


def union_length_by(groups: IntArray, count: int, starts: IntArray, ends: IntArray) -> IntArray:
    """Return the time covered by the intervals of each group 0 ≤ g < count, shape (count,). Ignores other groups."""
    starts, ends, groups = _by_start(starts, ends, groups)
    total, reach = np.zeros(count, np.int64), np.full(count, _BEFORE_ALL)
    _covered(groups, starts, ends, reach, total)
    return total


def union_by(groups: IntArray, count: int, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the :func:`union` of each group 0 ≤ g < count as arrays, sorted by group and start: group, start, end."""
    starts, ends, groups = _by_start(starts, ends, groups)
    group, start, end = (np.empty(len(starts), np.int64) for _ in range(3))
    current = np.full(count, -1, np.int64)
    merged = _merged(groups.astype(np.int64, copy=False), starts, ends, current, group, start, end)
    group, start, end = group[:merged], start[:merged], end[:merged]
    order = groupby.stable_order(group, count)  # the intervals of each group are already sorted by start
    start = start[order]  # one array after the other, so that the unsorted one is freed
    end = end[order]
    return group[order], start, end


def covered_ns(layer: Intervals, starts: IntArray, ends: IntArray) -> IntArray:
    """Return how much of each window [start, end) the interval set covers, in ns, shape (windows,)."""
    first, last = layer
    covered = np.empty(len(starts), np.int64)
    _cover(first, last, np.append(0, np.cumsum(last - first)), starts, ends, covered)
    return covered


def length_inside(
    groups: IntArray, count: int, starts: IntArray, ends: IntArray, windows: Sequence[Intervals]
) -> IntArray:
    """Return the time that the intervals of each group 0 ≤ g < count cover inside a set of windows, shape (count,). The
    windows of group g are ``windows[g % len(windows)]``. Ignores other groups."""
    starts, ends, groups = _by_start(starts, ends, groups)
    first, last = (np.concatenate([window[edge] for window in windows]) for edge in (0, 1))
    passed = np.concatenate([np.append(0, np.cumsum(window[1] - window[0])) for window in windows])
    bounds = np.cumsum([0, *(len(window[0]) for window in windows)])
    total, reach = np.zeros(count, np.int64), np.full(count, _BEFORE_ALL)
    _inside(groups, starts, ends, first, last, passed, bounds, reach, total)
    return total


def intersect(a: Intervals, b: Intervals) -> Intervals:
    if not len(a[0]) or not len(b[0]):
        return EMPTY
    edges = np.concatenate([a[1], b[1], a[0], b[0]])  # at equal times, ends come first: touching is no overlap
    order = np.argsort(edges, kind="stable")
    depth = np.cumsum(np.where(order < len(a[1]) + len(b[1]), -1, 1))
    edges = edges[order]
    both = np.flatnonzero(depth == 2)
    return union(edges[both], edges[both + 1])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Return the parts of the set ``a`` that are not in the set ``b``."""
    if not len(a[0]) or not len(b[0]):
        return a
    low, high = min(a[0][0], b[0][0]), max(a[1][-1], b[1][-1])
    gaps = (np.append(low, b[1]), np.append(b[0], high))
    return intersect(a, union(*gaps))


def _by_start(starts: IntArray, *arrays: IntArray) -> tuple[IntArray, ...]:
    if (starts[1:] >= starts[:-1]).all():
        return starts, *arrays
    order = np.argsort(starts, kind="stable")
    return starts[order], *(array[order] for array in arrays)


@compiled
def _covered(
    groups: IntArray | Int32Array, starts: IntArray, ends: IntArray, reach: Out[IntArray], total: Out[IntArray]
) -> None:
    for i in range(len(groups)):
        group = groups[i]
        if group >= 0 and ends[i] > starts[i] and ends[i] > reach[group]:
            total[group] += ends[i] - max(starts[i], reach[group])
            reach[group] = ends[i]


@compiled
def _inside(
    groups: IntArray | Int32Array, starts: IntArray, ends: IntArray, first: IntArray, last: IntArray,
    passed: IntArray, bounds: IntArray, reach: Out[IntArray], total: Out[IntArray],
) -> None:  # fmt: skip
    """``bounds`` are the first windows of each set, and ``passed`` has one item more than ``first`` for each set."""
    for i in range(len(groups)):
        group = groups[i]
        if group >= 0 and ends[i] > starts[i] and ends[i] > reach[group]:
            owner = group % (len(bounds) - 1)
            begin, end = bounds[owner], bounds[owner + 1]
            before = _until(first[begin:end], last[begin:end], passed[begin + owner :], max(starts[i], reach[group]))
            total[group] += _until(first[begin:end], last[begin:end], passed[begin + owner :], ends[i]) - before
            reach[group] = ends[i]


@compiled
def _cover(
    first: IntArray, last: IntArray, passed: IntArray, starts: IntArray, ends: IntArray, covered: Out[IntArray]
) -> None:
    for i in range(len(starts)):
        covered[i] = _until(first, last, passed, ends[i]) - _until(first, last, passed, starts[i])


@compiled
def _until(first, last, passed, time):  # type: ignore[no-untyped-def]
    """Return the time that the intervals cover before ``time``. The first i of the intervals cover ``passed[i]``."""
    begun = np.searchsorted(first, time, side="right")
    return passed[begun] - max(last[begun - 1] - time, 0) if begun else 0


@compiled
def _merged(
    groups: IntArray, starts: IntArray, ends: IntArray,
    current: Out[IntArray], group: Out[IntArray], start: Out[IntArray], end: Out[IntArray],
) -> int:  # fmt: skip
    """``current`` holds the last interval of each group."""
    merged = 0
    for i in range(len(groups)):
        if groups[i] < 0 or ends[i] <= starts[i]:
            continue
        at = current[groups[i]]
        if at >= 0 and starts[i] <= end[at]:
            end[at] = max(end[at], ends[i])
        else:
            current[groups[i]] = merged
            group[merged], start[merged], end[merged] = groups[i], starts[i], ends[i]
            merged += 1
    return merged


@compiled
def _is_sorted(starts: IntArray, rows: IntArray) -> bool:
    sorted_so_far = True
    for k in range(1, len(rows)):
        sorted_so_far &= starts[rows[k]] >= starts[rows[k - 1]]
    return sorted_so_far


@compiled
def _united(rows: IntArray, starts: IntArray, ends: IntArray, first: Out[IntArray], last: Out[IntArray]) -> int:
    merged = 0
    for i in rows:
        if ends[i] <= starts[i]:
            continue
        if merged and starts[i] <= last[merged - 1]:
            last[merged - 1] = max(last[merged - 1], ends[i])
        else:
            first[merged], last[merged] = starts[i], ends[i]
            merged += 1
    return merged
