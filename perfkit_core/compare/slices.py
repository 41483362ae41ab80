"""The middle steps of a run, and their exclusive partition: the one event to which each nanosecond belongs.

A comparison attributes the difference of the median steps. Medians cannot be divided into parts, means can: so the
parts are those of the *middle steps*, the half of them (rounded up, at least two) nearest to the median, because the
content of one or two steps is chance. The difference between their mean and the median is a part of its own. Unless
both runs have steps, each rank's recording is one window, from its first to its last event.

Categories and their precedence are those of the view partition. Within a category an instant belongs to one event:

- on a device: the running kernel or copy that started first;
- waiting for input: the innermost host event of the data loader on the thread of the steps;
- on the host: the innermost event in an operator or runtime call on the thread of the steps; else such an event of a
  forward, backward or optimizer pass on another thread (usually autograd's); else the innermost other event on the
  thread of the steps (Python, annotations); else the event that started last elsewhere.

A timeline is three int64 arrays of one shape: start, end and row of disjoint pieces in order of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import BACKWARD, FORWARD, OPERATOR_KINDS, OPTIMIZER, RUNTIME, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.runtime.compile import compiled
from perfkit_core.views import select, tables
from perfkit_core.views.steps import partition, step_rows
from perfkit_core.views.steps.activity import Activities, activities, step_threads

_FEWEST: Final = 2
"""With an even number of steps, the median is the mean of two."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Intervals [start, end) of ranks, shape (windows,), and the time ``typical_ns`` that they represent."""

    rank: IntArray
    start_ns: IntArray
    end_ns: IntArray
    typical_ns: int

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def mean_ns(self) -> int:
        """Mean length, rounded to ns."""
        return int(tables.rounded_division((self.end_ns - self.start_ns).sum(), len(self)))

    def starts_in(self, rank: IntArray, time_ns: IntArray) -> IntArray:
        """Return the rows (of arrays of one shape) that start in a window of their rank, ascending."""
        rows = [np.empty(0, np.int64)]
        for number in np.unique(self.rank).tolist():
            mine = self.rank == number
            begun = np.searchsorted(np.sort(self.start_ns[mine]), time_ns, side="right")
            ended = np.searchsorted(np.sort(self.end_ns[mine]), time_ns, side="right")
            rows.append(np.flatnonzero((rank == number) & (begun > ended)))
        return np.sort(np.concatenate(rows))


def middle_steps(trace: Trace) -> Windows:
    ascending, rows = np.sort(trace.ints("dur_ns")[step_rows.step_rows(trace)]), middle_rows(trace)
    count = len(ascending)
    # the mean of the two in the middle, truncated to ns
    median = (int(ascending[(count - 1) // 2]) + int(ascending[count // 2])) // 2 if count else 0
    return Windows(trace.ints("rank")[rows], trace.ints("start_ns")[rows], trace.end_ns[rows], median)


def middle_rows(trace: Trace) -> IntArray:
    rows, dur = step_rows.step_rows(trace), trace.ints("dur_ns")
    order = rows[np.argsort(dur[rows], kind="stable")]
    count = len(order)
    middle = order[(count - 1) // 2 : count // 2 + 1]
    distance = np.abs(len(middle) * dur[order] - dur[middle].sum())
    return np.sort(order[np.argsort(distance, kind="stable")][: max(_FEWEST, (count + 1) // 2)])


def whole_run(trace: Trace) -> Windows:
    """Return the interval from the first to the last event of each rank, and their mean over the ranks."""
    activity = activities(trace)
    rows = np.flatnonzero(activity.host | activity.compute | activity.communication | activity.copy)
    code, count = select.rank_codes(trace)
    first, _ = groupby.extremes(code[rows], count, trace.ints("start_ns")[rows])
    _, last = groupby.extremes(code[rows], count, trace.end_ns[rows])
    with_time = np.flatnonzero(last > first)
    windows = Windows(select.ranks(trace)[with_time], first[with_time], last[with_time], 0)
    return replace(windows, typical_ns=windows.mean_ns)


def shared_out(total_ns: Iterable[int], count: int) -> IntArray:
    """Return sums over ``count`` windows as parts of their mean: integers that sum to the rounded mean, each within 1
    ns of its own mean."""
    passed = np.cumsum(np.array([0, *total_ns], np.int64))
    marks: IntArray = (2 * passed + count) // (2 * max(count, 1))
    return np.diff(marks)


Timeline = tuple[IntArray, IntArray, IntArray]


def innermost(rows: IntArray, starts: IntArray, ends: IntArray) -> Timeline:
    """Assign each instant to the running row that started last (of nested events the innermost)."""
    ordered = rows[np.lexsort((-ends[rows], starts[rows]))]
    return _trimmed(_innermost(ordered, starts, ends, *_room(2 * len(rows) + 1)))


def first_come(rows: IntArray, starts: IntArray, ends: IntArray) -> Timeline:
    """Assign each instant to the running row that started first: a row keeps its time until its end."""
    ordered = rows[np.lexsort((-ends[rows], starts[rows]))]
    return _trimmed(_first_come(ordered, starts, ends, *_room(len(rows))))


def _room(size: int) -> tuple[IntArray, IntArray, IntArray]:
    return np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)


def _trimmed(pieces: tuple[int, IntArray, IntArray, IntArray]) -> Timeline:
    count, start, end, row = pieces
    return start[:count].copy(), end[:count].copy(), row[:count].copy()


def under(upper: Timeline, lower: Timeline) -> Timeline:
    """Return ``upper``, and ``lower`` in its gaps."""
    if not len(upper[0]) or not len(lower[0]):
        return lower if len(lower[0]) else upper
    _, start, end, row, index = cut(lower[0], lower[1], upper)
    free = row < 0
    parts = zip(upper, (start[free], end[free], lower[2][index[free]]), strict=True)
    starts, finishes, rows = (np.concatenate(pair) for pair in parts)
    order = np.argsort(starts, kind="stable")
    return starts[order], finishes[order], rows[order]


def cut(starts: IntArray, ends: IntArray, by: Timeline) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Cut windows [start, end) at the pieces of a timeline: piece of the timeline (-1: none), start, end, its row (-1:
    none), and window of each part, the parts of a window in order of time. Windows may overlap; empty ones have no
    parts."""
    counts = _parts(starts, ends, by[0], by[1])
    room = [np.empty(int(counts.sum()), np.int64) for _ in range(4)]
    _cut(starts, ends, by[0], by[1], *room)
    piece, start, end, window = room
    return piece, start, end, np.append(by[2], -1)[piece], window


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


EXCLUSIVE: Final = ("device_compute", "exposed_communication", "exposed_copy")
"""The categories in which a device works, given device work."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Disjoint pieces of windows, by window and time: ``window``, ``start_ns``, ``end_ns``, ``category`` (index into
    ``categories``) and ``row`` of the event that owns it (-1: none), shape (pieces,)."""

    categories: tuple[str, ...]
    window: IntArray
    start_ns: IntArray
    end_ns: IntArray
    category: IntArray
    row: IntArray

    @property
    def dur_ns(self) -> IntArray:
        return self.end_ns - self.start_ns


def slices(trace: Trace, rank: IntArray, start_ns: IntArray, end_ns: IntArray) -> Slices:
    """Return the pieces of windows [start, end) of ranks (-1: unknown); the pieces of a window sum to it."""
    activity = activities(trace)
    masks = _events(trace, activity)
    parts = [[np.empty(0, np.int64)] * 5]
    for number in np.unique(rank).tolist():
        windows = np.flatnonzero(rank == number)
        sets = activity.of(trace, number)
        device = (sets.compute, sets.communication, *((sets.copy,) if activity.on_device else ()))
        layers = (*device, sets.loading, sets.host)
        categories = reduce(under, [(*layer, np.full(len(layer[0]), index)) for index, layer in enumerate(layers)])
        _, start, end, category, within = cut(start_ns[windows], end_ns[windows], categories)
        category = np.where(category < 0, len(layers), category)
        owners = _owners(trace, activity, masks, number)
        for index in range(len(layers) + 1):
            mine = np.flatnonzero(category == index)
            begin, finish, row, piece = start[mine], end[mine], np.full(len(mine), NO_ROW), np.arange(len(mine))
            if index < len(layers):
                _, begin, finish, row, piece = cut(start[mine], end[mine], owners[index])
            parts.append([windows[within[mine]][piece], begin, finish, np.full(len(piece), index), row])
    window, begin, finish, category, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((begin, window))
    names = partition.ON_DEVICE if activity.on_device else partition.ON_HOST
    return Slices(names, window[order], begin[order], finish[order], category[order], row[order])


def _events(trace: Trace, activity: Activities) -> Sequence[BoolArray]:
    """Return, for each category but the last, the mask of the events that can own its time."""
    loading = activity.host & _within(trace, activity.loading) & step_threads(trace)
    if activity.on_device:
        return activity.compute, activity.communication, activity.copy, loading, activity.host
    computing = activity.host & _within(trace, activity.compute) & ~_within(trace, activity.communication)
    return computing, activity.communication, loading, activity.host


def categories_of_events(trace: Trace) -> IntArray:
    """Return the category of each event's time, as in :class:`Slices`, unless another takes precedence, shape (rows,);
    for events that own no time, such as steps, that of no event."""
    masks = _events(trace, activities(trace))
    first: IntArray = np.argmax([*masks, np.ones(len(trace), np.bool_)], axis=0)
    return first


def _owners(trace: Trace, activity: Activities, masks: Sequence[BoolArray], rank: int) -> Sequence[Timeline]:
    rows = np.zeros(len(trace), np.bool_)
    rows[select.rows_of_rank(trace, rank)] = True
    start, end = trace.ints("start_ns"), trace.end_ns
    *working, loading, rest = (rows & mask for mask in masks)
    waits, others = innermost(np.flatnonzero(loading), start, end), _on_host(trace, rest)
    if activity.on_device:
        return *(first_come(np.flatnonzero(mask), start, end) for mask in working), waits, others
    compute, communication = working
    return _on_host(trace, compute), first_come(np.flatnonzero(communication), start, end), waits, others


def _on_host(trace: Trace, chosen: BoolArray) -> Timeline:
    """Return the timeline of host events: those of the first class with an event own an instant, innermost first."""
    working = chosen & _within(trace, trace.rows("kind", *OPERATOR_KINDS, RUNTIME, SYNC))
    here = step_threads(trace)
    training = working & ~here & trace.rows("phase", FORWARD, BACKWARD, OPTIMIZER)
    others = chosen & ~here & ~training
    classes = (working & here, training, chosen & here & ~working, others & working, others & ~working)
    start, end = trace.ints("start_ns"), trace.end_ns
    return reduce(under, [innermost(np.flatnonzero(mask), start, end) for mask in classes])


def _within(trace: Trace, mask: BoolArray) -> BoolArray:
    inside: BoolArray = nesting.nearest_on_path(trace.ints("parent"), mask) >= 0
    return inside
