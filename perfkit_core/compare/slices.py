"""The exclusive partition of windows of time, which assigns every nanosecond to one event.

A comparison attributes the difference between the median steps. A median cannot be divided into parts, but a mean can.
So the parts are means over the *middle steps*: the half of the steps (rounded up, at least two) that is nearest to the
median. The difference between this mean and the median is an additional part.

Categories and their precedence are those of the view ``partition``. Within a category, an instant belongs to one event:

- on a device: the running kernel or copy that started first;
- waiting for input: the innermost event of the data loader on the step thread (the thread that runs the steps);
- on the host: the innermost running event of the first of these groups in which an event is running:

  1. operators, runtime calls and synchronisation on the step thread, with everything inside them;
  2. the same on another thread (usually autograd's), in a forward, backward or optimizer pass;
  3. all other events on the step thread, such as Python code and annotations;
  4. all other events on other threads, operators and runtime calls first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.base.system import memory_limit
from perfkit_core.trace.model.schema import BACKWARD, FORWARD, OPERATOR_KINDS, OPTIMIZER, RUNTIME, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select
from perfkit_core.views.steps import partition
from perfkit_core.views.steps.activity import Activities, activities, step_threads

_EVENT_BYTES: Final = 200
"""Memory of the slices for each event, including that of their creation."""


def shared_out(total_ns: Iterable[int], count: int) -> IntArray:
    """Divide each total by ``count``, the number of windows. The results are integers. Their sum is
    ``sum(total_ns) / count``, rounded once. Each differs from its exact value by less than 1 ns."""
    passed = np.cumsum(np.array([0, *total_ns], np.int64))
    marks: IntArray = (2 * passed + count) // (2 * max(count, 1))
    return np.diff(marks)


Timeline = tuple[IntArray, IntArray, IntArray]
"""Pieces of time that do not overlap, in order of time: their starts, their ends, and the rows of their events."""


def innermost(rows: IntArray, starts: IntArray, ends: IntArray) -> Timeline:
    """Assign each instant to the running event that started last, which is the innermost of nested events."""
    ordered = rows[np.lexsort((-ends[rows], starts[rows]))]
    stack = np.empty(len(rows) + 1, np.int64)
    first, last, owner = np.empty((3, 2 * len(rows) + 1), np.int64)
    count = _innermost(ordered, starts, ends, stack, first, last, owner)
    return first[:count].copy(), last[:count].copy(), owner[:count].copy()


def first_come(rows: IntArray, starts: IntArray, ends: IntArray) -> Timeline:
    """Assign each instant to the running event that started first."""
    ordered = rows[np.lexsort((-ends[rows], starts[rows]))]
    first, last, owner = np.empty((3, len(rows)), np.int64)
    count = _first_come(ordered, starts, ends, first, last, owner)
    return first[:count].copy(), last[:count].copy(), owner[:count].copy()


def under(upper: Timeline, lower: Timeline) -> Timeline:
    """Merge two timelines. ``lower`` fills the gaps between the pieces of ``upper``."""
    if not len(upper[0]) or not len(lower[0]):
        return lower if len(lower[0]) else upper
    _, start, end, row, index = cut(lower[0], lower[1], upper)
    free = row < 0
    parts = zip(upper, (start[free], end[free], lower[2][index[free]]), strict=True)
    starts, finishes, rows = (np.concatenate(pair) for pair in parts)
    order = np.argsort(starts, kind="stable")
    return starts[order], finishes[order], rows[order]


def cut(starts: IntArray, ends: IntArray, by: Timeline) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Cut each window [start, end) into parts wherever a piece of the timeline starts or ends. Windows may overlap.

    Return five arrays with one item per part, ordered by window, then by time: the index of the piece that contains the
    part (-1 in a gap), the start and end of the part, the row of the piece's event (-1 in a gap), the window's index.
    """
    count = _parts(starts, ends, by[0], by[1])
    piece, start, end, window = (np.empty(count, np.int64) for _ in range(4))
    _cut(starts, ends, by[0], by[1], piece, start, end, window)
    return piece, start, end, np.append(by[2], -1)[piece], window


@compiled
def _innermost(
    rows: IntArray, starts: IntArray, ends: IntArray,
    open_rows: Out[IntArray], first: Out[IntArray], last: Out[IntArray], owner: Out[IntArray],
) -> int:  # fmt: skip
    depth, count, now = 0, 0, np.iinfo(np.int64).min
    for k in range(len(rows) + 1):
        until = starts[rows[k]] if k < len(rows) else np.iinfo(np.int64).max
        while depth and now < until:
            top = open_rows[depth - 1]
            stop = min(ends[top], until)
            if stop > now:
                first[count], last[count], owner[count] = now, stop, top
                count += 1
                now = stop
            if ends[top] > until:
                break
            depth -= 1
        now = until
        if k < len(rows):
            open_rows[depth] = rows[k]
            depth += 1
    return count


@compiled
def _first_come(
    rows: IntArray, starts: IntArray, ends: IntArray, first: Out[IntArray], last: Out[IntArray], owner: Out[IntArray]
) -> int:
    count, reach = 0, np.iinfo(np.int64).min
    for i in rows:
        if ends[i] > starts[i] and ends[i] > reach:
            first[count], last[count], owner[count] = max(starts[i], reach), ends[i], i
            reach = ends[i]
            count += 1
    return count


@compiled
def _parts(starts: IntArray, ends: IntArray, first: IntArray, last: IntArray) -> int:
    """Return how many parts :func:`_cut` makes."""
    count = 0
    for w in range(len(starts)):
        now = starts[w]
        k = np.searchsorted(last, now, side="right")
        while now < ends[w]:
            if k == len(first) or first[k] >= ends[w]:
                count += 1
                break
            if first[k] > now:
                count += 1
            count += 1
            now = last[k]
            k += 1
    return count


@compiled
def _cut(
    starts: IntArray, ends: IntArray, first: IntArray, last: IntArray,
    piece: Out[IntArray], begin: Out[IntArray], finish: Out[IntArray], window: Out[IntArray],
) -> None:  # fmt: skip
    count = 0
    for w in range(len(starts)):
        now = starts[w]
        k = np.searchsorted(last, now, side="right")
        while now < ends[w]:
            free = min(first[k], ends[w]) if k < len(first) else ends[w]
            if free > now:
                piece[count], begin[count], finish[count], window[count] = -1, now, free, w
                count += 1
                now = free
            if now < ends[w]:
                stop = min(last[k], ends[w])
                piece[count], begin[count], finish[count], window[count] = k, now, stop, w
                count += 1
                now = stop
                k += 1


EXCLUSIVE: Final = ("device_compute", "exposed_communication", "exposed_copy")
"""The categories of device work in the step partition."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The pieces of all windows, ordered by window and time, without overlap. The arrays have the shape (pieces,)."""

    categories: tuple[str, ...]
    window: IntArray
    start_ns: IntArray
    end_ns: IntArray
    category: IntArray  # The category of the piece, as an index into ``categories``.
    row: IntArray  # The row of the event to which the piece belongs, -1 if there is none.

    @property
    def dur_ns(self) -> IntArray:
        return self.end_ns - self.start_ns


def slices(trace: Trace, rank: IntArray, start_ns: IntArray, end_ns: IntArray) -> Slices:
    """Cut windows [start, end) into pieces that fill them. Each piece has one category and at most one event. Raises
    UsageError if they would exceed the limit of memory."""
    memory_limit.require(_EVENT_BYTES * len(trace), "the time of each event")
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
    """Return one mask per category: the events to which time of the category can be assigned. Idle has no mask."""
    loading = activity.host & _within(trace, activity.loading) & step_threads(trace)
    if activity.on_device:
        return activity.compute, activity.communication, activity.copy, loading, activity.host
    computing = activity.host & _within(trace, activity.compute) & ~_within(trace, activity.communication)
    return computing, activity.communication, loading, activity.host


def categories_of_events(trace: Trace) -> IntArray:
    """Return the category of each event, as an index into ``Slices.categories``, shape (rows,). Events to which no time
    is assigned, such as steps, have the last category (idle)."""
    masks = _events(trace, activities(trace))
    first: IntArray = np.argmax([*masks, np.ones(len(trace), np.bool_)], axis=0)
    return first


def _owners(trace: Trace, activity: Activities, masks: Sequence[BoolArray], rank: int) -> Sequence[Timeline]:
    rows = np.zeros(len(trace), np.bool_)
    rows[select.rows_of_rank(trace, rank)] = True
    start, end = trace.ints("start_ns"), trace.end_ns
    *working, loading, rest = (rows & mask for mask in masks)
    waits, host_work = innermost(np.flatnonzero(loading), start, end), _on_host(trace, rest)
    if activity.on_device:
        return *(first_come(np.flatnonzero(mask), start, end) for mask in working), waits, host_work
    compute, communication = working
    return _on_host(trace, compute), first_come(np.flatnonzero(communication), start, end), waits, host_work


def _on_host(trace: Trace, chosen: BoolArray) -> Timeline:
    """Return the timeline of host events. The module's docstring says to which event each point in time belongs."""
    working = chosen & _within(trace, trace.rows("kind", *OPERATOR_KINDS, RUNTIME, SYNC))
    here = step_threads(trace)
    training = working & ~here & trace.rows("phase", FORWARD, BACKWARD, OPTIMIZER)
    background = chosen & ~here & ~training
    classes = (working & here, training, chosen & here & ~working, background & working, background & ~working)
    start, end = trace.ints("start_ns"), trace.end_ns
    return reduce(under, [innermost(np.flatnonzero(mask), start, end) for mask in classes])


def _within(trace: Trace, mask: BoolArray) -> BoolArray:
    inside: BoolArray = nesting.nearest_on_path(trace.ints("parent"), mask) >= 0
    return inside
