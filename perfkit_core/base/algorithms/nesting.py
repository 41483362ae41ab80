"""Nesting of host events, self times, and sums and lookups along the paths of a tree.

B is inside A if both are on one thread, A.start ≤ B.start < A.end and B.end ≤ A.end. The parent of B is the enclosing
event that started last. Events that overlap without nesting are siblings. The self time of an event is its duration
minus the union of its direct children, so it is never negative.

A tree is an array that holds the row of each row's parent, or -1 for roots. The path of a row leads from the root to
the row itself. The functions after :func:`self_times_in_order` return arrays of shape (rows,). They require that every
parent precedes its children.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms.arrays import BoolArray, ByteArray, Int32Array, IntArray, copied, filled, new_array
from perfkit_core.base.runtime.compiled import Out, Strided, compiled

_INITIAL_SLOTS: Final = 64
"""Initial slots of the hash table of threads, a power of two. The table is enlarged when it is half full."""
_FACTOR: Final = 0x1E3779B97F4A7C15

N = TypeVar("N", bound="np.integer[Any]")


def nest(thread: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the row of each event's parent, or -1 for roots. ``thread`` may be any integer key. O(n log n)."""
    order = np.lexsort((-end_ns, start_ns))
    inside, process = np.ones(len(order), np.bool_), np.zeros(len(order), np.int64)
    above = nest_in_order(inside, process, thread[order], start_ns[order], end_ns[order])
    parent = np.empty(len(order), np.int64)
    parent[order] = np.where(above >= 0, order[above], -1)
    return parent


def nest_in_order(
    inside: BoolArray, process: IntArray, thread: IntArray, start_ns: IntArray, end_ns: IntArray
) -> IntArray:
    """Return the same parents as :func:`nest` for the rows in the mask ``inside``, and -1 for other rows, in O(n). The
    table must be sorted by start, then longest first. ``process`` and ``thread`` together identify a thread."""
    parent, slots = filled(len(inside), -1), _INITIAL_SLOTS
    while not _nest_in_order(inside, process, thread, start_ns, end_ns, parent, np.full((3, slots), -1, np.int64)):
        slots = min(_INITIAL_SLOTS * slots, 2 << len(inside).bit_length())  # there are at most as many threads as rows
    return parent


def innermost(thread: IntArray, start_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return when which event of its thread is the innermost, as disjoint pieces sorted by thread and time: start, end,
    and index of the event. The events must be sorted by thread, then start, then longest first. Of events that overlap
    without nesting, the later one is innermost until it ends. O(n)."""
    begin, finish, event, stack = (np.empty(2 * len(start_ns), np.int64) for _ in range(4))
    count = _innermost(thread, start_ns, end_ns, stack, begin, finish, event)
    return begin[:count].copy(), finish[:count].copy(), event[:count].copy()


@compiled
def _innermost(
    thread: IntArray, start: IntArray, end: IntArray, stack: Out[IntArray], begin: Out[IntArray],
    finish: Out[IntArray], event: Out[IntArray],
) -> int:  # fmt: skip
    """``stack[:depth]`` holds the events that have begun, the innermost last; ``now`` is the end of the last piece."""
    count, depth, now = 0, 0, np.int64(0)
    for i in range(len(start) + 1):
        last = i == len(start) or (i > 0 and thread[i] != thread[i - 1])  # the thread has no more events
        while depth and (last or end[stack[depth - 1]] <= start[i]):
            top = stack[depth - 1]
            if end[top] > now:
                begin[count], finish[count], event[count] = now, end[top], top
                now = end[top]
                count += 1
            depth -= 1
        if i < len(start):
            if depth and start[i] > now:
                begin[count], finish[count], event[count] = now, start[i], stack[depth - 1]
                count += 1
            now = start[i] if last or not i or start[i] > now else now
            stack[depth] = i
            depth += 1
    return count


def renumbered(parent: IntArray, order: IntArray) -> IntArray:
    """Return for each row in ``order`` its parent's position there, or -1 if the parent is missing or comes later."""
    row, parents = new_array(len(order)), new_array(len(order))
    _renumbered(parent, order, row, parents)
    return parents


def self_times(parent: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the self time of each row, shape (rows,), in ns. ``parent`` must be a result of :func:`nest`."""
    order = np.lexsort((-end_ns, start_ns))
    self_ns, all_rows = np.empty(len(order), np.int64), np.ones(len(order), np.bool_)
    self_ns[order] = self_times_in_order(all_rows, renumbered(parent, order), start_ns[order], end_ns[order])
    return self_ns


def self_times_in_order(selected: BoolArray, parent: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return :func:`self_times` for the rows in the mask ``selected``, and -1 for other rows. All children count, also
    those outside the mask. The table must be sorted by start, then longest first."""
    self_ns, covered = new_array(len(parent)), new_array(len(parent))
    _self_times_in_order(selected, parent, start_ns, end_ns, self_ns, covered)
    return self_ns


def sum_up(parent: IntArray, values: npt.NDArray[Any]) -> IntArray:
    """Return the value of each row plus the values of its descendants."""
    total = copied(values)
    _sum_up(parent, total)
    return total


def sum_down(parent: IntArray, values: npt.NDArray[Any]) -> IntArray:
    """Return the value of each row plus the values of its ancestors."""
    total = copied(values)
    _sum_down(parent, total)
    return total


def first_on_path(parent: IntArray, row_values: npt.NDArray[N]) -> npt.NDArray[N]:
    """Return, for each row, the first value ≥ 0 on the path from the root to the row, or -1. Keeps the dtype."""
    values = copied(row_values, row_values.dtype)
    _first_on_path(parent, values)
    return values


def last_on_path(parent: IntArray, row_values: npt.NDArray[N]) -> npt.NDArray[N]:
    """Return, for each row, the last value ≥ 0 on the path from the root to the row, or -1 if there is none."""
    values = copied(row_values, row_values.dtype)
    _last_on_path(parent, values)
    return values


def nearest_on_path(parent: IntArray, selected: BoolArray) -> IntArray:
    """Return, for each row, the last row of the mask ``selected`` on the path from the root to the row, or -1."""
    rows = new_array(len(parent))
    _nearest_on_path(parent, selected, rows)
    return rows


def nearest_above(parent: IntArray, selected: BoolArray) -> IntArray:
    """Return the row of each row's nearest ancestor in the mask ``selected``, or -1 if there is none."""
    rows = new_array(len(parent))
    _nearest_above(parent, selected, rows)
    return rows


def outermost(parent: IntArray, selected: BoolArray) -> IntArray:
    """Return, for each row, the first row of the mask ``selected`` on the path from the root to the row, or -1."""
    rows = new_array(len(parent))
    _outermost(parent, selected, rows)
    return rows


def lies_in(parent: IntArray, selected: BoolArray) -> BoolArray:
    """Return the mask of rows with an ancestor in the mask ``selected``."""
    mask = new_array(len(parent), np.bool_)
    _lies_in(parent, selected, mask)
    return mask


def holds(parent: IntArray, selected: BoolArray) -> BoolArray:
    """Return the mask of rows with a descendant in the mask ``selected``."""
    mask = filled(len(parent), 0, np.bool_)
    _holds(parent, selected, mask)
    return mask


def is_own(rows: IntArray) -> BoolArray:
    """Return the mask of positions i with ``rows[i] == i``: in a result of :func:`outermost`, the outermost rows."""
    mask = new_array(len(rows), np.bool_)
    _is_own(rows, mask)
    return mask


@compiled
def _lies_in(parent: IntArray, selected: BoolArray, mask: Out[BoolArray]) -> None:
    for i in range(len(parent)):
        p = parent[i]
        mask[i] = p >= 0 and (selected[p] or mask[p])


@compiled
def _holds(parent: IntArray, selected: BoolArray, mask: Out[BoolArray]) -> None:
    for i in range(len(parent) - 1, -1, -1):
        if parent[i] >= 0 and (selected[i] or mask[i]):
            mask[parent[i]] = True


@compiled
def _is_own(rows: IntArray, mask: Out[BoolArray]) -> None:
    for i in range(len(rows)):
        mask[i] = rows[i] == i


@compiled
def _nest_in_order(
    inside: BoolArray, process: Strided[IntArray], thread: Strided[IntArray], start: IntArray, end: IntArray,
    parent: Out[IntArray], table: Out[Annotated[IntArray, 2]],
) -> bool:  # fmt: skip
    """Set ``parent``. Return False if the hash table ``table`` has too few slots. Its three rows hold the process, the
    thread, and the thread's last event (-1 in a free slot)."""
    last, free = table.shape[1] - 1, table.shape[1] // 2
    for i in range(len(inside)):
        if not inside[i]:
            continue
        mixed = (thread[i] * _FACTOR ^ process[i]) * _FACTOR  # a hash: thread ids are often multiples of 2**n
        slot = (mixed ^ (mixed >> 32)) & last
        while table[2, slot] >= 0 and (table[0, slot] != process[i] or table[1, slot] != thread[i]):
            slot = (slot + 1) & last
        p = table[2, slot]
        if p < 0:
            if free == 0:
                return False
            free -= 1
            table[0, slot], table[1, slot] = process[i], thread[i]
        while p >= 0 and (start[i] >= end[p] or end[i] > end[p]):
            p = parent[p]  # event i is not inside event p: try the parent of p
        parent[i] = p
        table[2, slot] = i
    return True


@compiled
def _renumbered(parent: IntArray, order: IntArray, row: Out[IntArray], parents: Out[IntArray]) -> None:
    for i in range(len(order)):
        row[order[i]] = i
    for i in range(len(order)):
        above = parent[order[i]]
        parents[i] = row[above] if above >= 0 and row[above] < i else -1


@compiled
def _self_times_in_order(
    mask: BoolArray, parent: IntArray, start: IntArray, end: IntArray, self_ns: Out[IntArray], covered: Out[IntArray]
) -> None:
    for i in range(len(parent)):
        covered[i] = start[i]
        self_ns[i] = end[i] - start[i] if mask[i] else -1
        p = parent[i]
        if p >= 0 and mask[p]:
            begin = max(start[i], covered[p])
            finish = min(end[i], end[p])
            if finish > begin:
                self_ns[p] -= finish - begin
                covered[p] = finish


@compiled
def _sum_up(parent: IntArray, total: Out[IntArray]) -> None:
    for i in range(len(parent) - 1, -1, -1):
        if parent[i] >= 0:
            total[parent[i]] += total[i]


@compiled
def _sum_down(parent: IntArray, total: Out[IntArray]) -> None:
    for i in range(len(parent)):
        if parent[i] >= 0:
            total[i] += total[parent[i]]


@compiled
def _first_on_path(parent: IntArray, values: Out[IntArray | Int32Array | ByteArray]) -> None:
    for i in range(len(parent)):
        if parent[i] >= 0 and values[parent[i]] >= 0:
            values[i] = values[parent[i]]


@compiled
def _last_on_path(parent: IntArray, values: Out[IntArray | ByteArray]) -> None:
    for i in range(len(parent)):
        if values[i] < 0:
            values[i] = values[parent[i]] if parent[i] >= 0 else -1


@compiled
def _nearest_on_path(parent: IntArray, selected: BoolArray, rows: Out[IntArray]) -> None:
    for i in range(len(parent)):
        if selected[i]:
            rows[i] = i
        else:
            rows[i] = rows[parent[i]] if parent[i] >= 0 else -1


@compiled
def _nearest_above(parent: IntArray, selected: BoolArray, rows: Out[IntArray]) -> None:
    for i in range(len(parent)):
        p = parent[i]
        rows[i] = p if p < 0 or selected[p] else rows[p]


@compiled
def _outermost(parent: IntArray, selected: BoolArray, rows: Out[IntArray]) -> None:
    for i in range(len(parent)):
        above = rows[parent[i]] if parent[i] >= 0 else -1
        rows[i] = i if above < 0 and selected[i] else above
