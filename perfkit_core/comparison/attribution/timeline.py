"""Which one event owns each instant, among events that overlap? Exact integers, one pass over sorted edges.

A timeline is three int64 arrays of one shape: start, end and row of disjoint pieces in the order of time.
"""

from __future__ import annotations

import numpy as np

from perfkit_core.compiling import compiled
from perfkit_core.intervals import Intervals
from perfkit_core.trace import IntArray

Timeline = tuple[IntArray, IntArray, IntArray]

EMPTY: Timeline = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def innermost(rows: IntArray, starts: IntArray, ends: IntArray) -> Timeline:
    """Each instant belongs to the row that started last of those that still run (of nested events the innermost)."""
    ordered = rows[np.lexsort((-ends[rows], starts[rows]))]
    return _trimmed(_innermost(ordered, starts, ends, *_room(2 * len(rows) + 1)))


def first_come(rows: IntArray, starts: IntArray, ends: IntArray) -> Timeline:
    """Each instant belongs to the row that holds it the longest: one that runs keeps it until its end."""
    ordered = rows[np.lexsort((-ends[rows], starts[rows]))]
    return _trimmed(_first_come(ordered, starts, ends, *_room(len(rows))))


def labelled(intervals: Intervals, row: int) -> Timeline:
    """A disjoint set as a timeline in which all pieces carry one number."""
    return intervals[0], intervals[1], np.full(len(intervals[0]), row, np.int64)


def under(upper: Timeline, lower: Timeline) -> Timeline:
    """``upper``, and ``lower`` where it has nothing."""
    if not len(upper[0]) or not len(lower[0]):
        return lower if len(lower[0]) else upper
    _, start, end, row, index = cut(lower[0], lower[1], upper)
    free = row < 0
    parts = zip(upper, (start[free], end[free], lower[2][index[free]]), strict=True)
    starts, finishes, rows = (np.concatenate(pair) for pair in parts)
    order = np.argsort(starts, kind="stable")
    return starts[order], finishes[order], rows[order]


def cut(starts: IntArray, ends: IntArray, by: Timeline) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Windows [start, end) cut at the pieces of a timeline: piece of the timeline (-1: none), start, end, its row (-1:
    none), and window of each part, the parts of a window in the order of time. Windows may overlap; those without
    length have no parts."""
    counts = _parts(starts, ends, by[0], by[1])
    room = [np.empty(int(counts.sum()), np.int64) for _ in range(4)]
    _cut(starts, ends, by[0], by[1], *room)
    piece, start, end, window = room
    return piece, start, end, np.append(by[2], -1)[piece], window


def _room(size: int) -> tuple[IntArray, IntArray, IntArray]:
    return np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)


def _trimmed(found: tuple[int, IntArray, IntArray, IntArray]) -> Timeline:
    count, start, end, row = found
    return start[:count].copy(), end[:count].copy(), row[:count].copy()


@compiled
def _innermost(rows, starts, ends, first, last, owner):  # type: ignore[no-untyped-def]
    open_rows = np.empty(len(rows) + 1, np.int64)
    depth, found, now = 0, 0, np.iinfo(np.int64).min
    for k in range(len(rows) + 1):
        until = starts[rows[k]] if k < len(rows) else np.iinfo(np.int64).max
        while depth and now < until:
            top = open_rows[depth - 1]
            stop = min(ends[top], until)
            if stop > now:
                first[found], last[found], owner[found] = now, stop, top
                found += 1
                now = stop
            if ends[top] > until:
                break
            depth -= 1
        now = until
        if k < len(rows):
            open_rows[depth] = rows[k]
            depth += 1
    return found, first, last, owner


@compiled
def _first_come(rows, starts, ends, first, last, owner):  # type: ignore[no-untyped-def]
    found, reach = 0, np.iinfo(np.int64).min
    for i in rows:
        if ends[i] > starts[i] and ends[i] > reach:
            first[found], last[found], owner[found] = max(starts[i], reach), ends[i], i
            reach = ends[i]
            found += 1
    return found, first, last, owner


@compiled(steps=5)
def _parts(starts, ends, first, last):  # type: ignore[no-untyped-def]
    """How many parts each window has."""
    counts = np.zeros(len(starts), np.int64)
    for w in range(len(starts)):
        now = starts[w]
        k = np.searchsorted(last, now, side="right")
        while now < ends[w]:
            if k == len(first) or first[k] >= ends[w]:
                counts[w] += 1
                break
            if first[k] > now:
                counts[w] += 1
            counts[w] += 1
            now = last[k]
            k += 1
    return counts


@compiled(steps=5)
def _cut(starts, ends, first, last, piece, begin, finish, window):  # type: ignore[no-untyped-def]
    found = 0
    for w in range(len(starts)):
        now = starts[w]
        k = np.searchsorted(last, now, side="right")
        while now < ends[w]:
            free = min(first[k], ends[w]) if k < len(first) else ends[w]
            if free > now:
                piece[found], begin[found], finish[found], window[found] = -1, now, free, w
                found += 1
                now = free
            if now < ends[w]:
                stop = min(last[k], ends[w])
                piece[found], begin[found], finish[found], window[found] = k, now, stop, w
                found += 1
                now = stop
                k += 1
    return found
