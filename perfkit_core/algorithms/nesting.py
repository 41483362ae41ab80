"""Nesting of host events, self times, and sums and lookups along the paths of a tree.

B is inside A if both are on one thread, A.start ≤ B.start < A.end and B.end ≤ A.end; the parent is the enclosing event
that started last. Events that overlap without nesting are siblings. Self time is the duration less the union of the
direct children, so it is never negative.

A tree is the parent's row of each row, -1 for roots. All functions after :func:`self_times_in_order` need parent < row
and return arrays of shape (rows,).
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.arrays import BoolArray, IntArray, allocate, filled
from perfkit_core.runtime.compile import compiled

_ROOM: Final = 64
"""Initial slots of the hash table of threads, a power of two; it is enlarged when half full."""
_FACTOR: Final = 0x1E3779B97F4A7C15

N = TypeVar("N", bound="np.integer[Any]")


def nest(thread: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the parent of each row, shape (n,). ``thread`` may be any integer key; O(n log n)."""
    order = np.lexsort((-end_ns, start_ns, thread))
    parent = np.full(len(order), -1, np.int64)
    parent[order] = _enclosing(order, thread[order], start_ns[order], end_ns[order])
    return parent


def nest_in_order(
    inside: BoolArray, process: IntArray, thread: IntArray, start_ns: IntArray, end_ns: IntArray
) -> IntArray:
    """Return the parents as :func:`nest` of the rows ``inside`` of a table sorted by start, then longest first; -1 for
    other rows. ``process`` and ``thread`` together are the key, any integers. O(n), as threads are hashed."""
    parent, room = filled(len(inside), -1), _ROOM
    while not _nest_in_order(inside, process, thread, start_ns, end_ns, parent, np.full((3, room), -1, np.int64)):
        room = min(_ROOM * room, 2 << len(inside).bit_length())  # no more threads than rows
    return parent


def renumbered(parent: IntArray, order: IntArray) -> IntArray:
    """Return the parents of the rows in another ``order``, as rows of it; -1 for a parent that is not before its
    child."""
    row, parents = allocate(len(order), np.int64), allocate(len(order), np.int64)
    _renumbered(parent, order, row, parents)
    return parents


def self_times(parent: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the duration of each row less the union of its direct children, shape (n,)."""
    order = np.lexsort((-end_ns, start_ns))
    return _self_times(order, parent, start_ns, end_ns)


def self_times_in_order(wanted: BoolArray, parent: IntArray, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return :func:`self_times` of the rows ``wanted`` of a table sorted by start, then longest first; -1 for other
    rows, which are subtracted from their parents too."""
    own, covered = allocate(len(parent), np.int64), allocate(len(parent), np.int64)
    _self_times_in_order(wanted, parent, start_ns, end_ns, own, covered)
    return own


def sum_up(parent: IntArray, values: npt.NDArray[Any]) -> IntArray:
    """Return inclusive sums: the value of each row plus those of its descendants."""
    total = values.astype(np.int64)
    _sum_up(parent, total)
    return total


def sum_down(parent: IntArray, values: npt.NDArray[Any]) -> IntArray:
    """Return the value of each row plus those of its ancestors."""
    total = values.astype(np.int64)
    _sum_down(parent, total)
    return total


def first_on_path(parent: IntArray, own: npt.NDArray[N]) -> npt.NDArray[N]:
    """Return the value ≥ 0 nearest to the root on each row's path, -1 without one, in the type of ``own``."""
    values = own.copy()
    _first_on_path(parent, values)
    return values


def last_on_path(parent: IntArray, own: npt.NDArray[N]) -> npt.NDArray[N]:
    """Return the value ≥ 0 nearest to each row on its path, itself included; -1 without one, in the type of ``own``."""
    values = own.copy()
    _last_on_path(parent, values)
    return values


def nearest_on_path(parent: IntArray, wanted: np.ndarray) -> IntArray:
    """Return the row of the nearest ancestor-or-self in the mask ``wanted``, -1 without one."""
    rows = np.empty(len(parent), np.int64)
    _nearest_on_path(parent, wanted, rows)
    return rows


def nearest_above(parent: IntArray, wanted: np.ndarray) -> IntArray:
    """Return the row of the nearest ancestor in the mask ``wanted``, -1 without one."""
    rows = np.empty(len(parent), np.int64)
    _nearest_above(parent, wanted, rows)
    return rows


def outermost(parent: IntArray, wanted: np.ndarray) -> IntArray:
    """Return the row of the ancestor-or-self nearest to the root in the mask ``wanted``, -1 without one."""
    rows = np.empty(len(parent), np.int64)
    _outermost(parent, wanted, rows)
    return rows


def lies_in(parent: IntArray, wanted: np.ndarray) -> BoolArray:
    """Return the mask of rows with an ancestor in the mask ``wanted``."""
    mask = np.empty(len(parent), np.bool_)
    _lies_in(parent, wanted, mask)
    return mask


def holds(parent: IntArray, wanted: np.ndarray) -> BoolArray:
    """Return the mask of rows with a descendant in the mask ``wanted``."""
    mask = np.zeros(len(parent), np.bool_)
    _holds(parent, wanted, mask)
    return mask


def is_own(rows: IntArray) -> BoolArray:
    """Return the mask of the rows that hold their own row number, in an array that :func:`outermost` returned."""
    own = np.empty(len(rows), np.bool_)
    _is_own(rows, own)
    return own


@compiled
def _enclosing(row, thread, start, end):  # type: ignore[no-untyped-def]
    count = len(row)
    parent = np.full(count, -1, np.int64)
    stack = np.empty(count, np.int64)
    depth = 0
    for i in range(count):
        if i and thread[i] != thread[i - 1]:
            depth = 0
        while depth and (start[i] >= end[stack[depth - 1]] or end[i] > end[stack[depth - 1]]):
            depth -= 1
        if depth:
            parent[i] = row[stack[depth - 1]]
        stack[depth] = i
        depth += 1
    return parent


@compiled
def _nest_in_order(inside, process, thread, start, end, parent, table):  # type: ignore[no-untyped-def]
    """Set ``parent``; return False if ``table`` has too few slots. Its rows are process, thread and last event (-1:
    free)."""
    last, free = table.shape[1] - 1, table.shape[1] // 2
    for i in range(len(inside)):
        if not inside[i]:
            continue
        mixed = (thread[i] * _FACTOR ^ process[i]) * _FACTOR  # numbers are often consecutive, or multiples of 2**n
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
            p = parent[p]  # the stack of open events is the chain of parents
        parent[i] = p
        table[2, slot] = i
    return True


@compiled
def _renumbered(parent, order, row, found):  # type: ignore[no-untyped-def]
    for i in range(len(order)):
        row[order[i]] = i
    for i in range(len(order)):
        above = parent[order[i]]
        found[i] = row[above] if above >= 0 and row[above] < i else -1


@compiled
def _self_times(order, parent, start, end):  # type: ignore[no-untyped-def]
    own = end - start
    covered = start.copy()
    for i in order:
        p = parent[i]
        if p >= 0:
            begin = max(start[i], covered[p])
            finish = min(end[i], end[p])
            if finish > begin:
                own[p] -= finish - begin
                covered[p] = finish
    return own


@compiled
def _self_times_in_order(wanted, parent, start, end, own, covered):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        covered[i] = start[i]
        own[i] = end[i] - start[i] if wanted[i] else -1
        p = parent[i]
        if p >= 0 and wanted[p]:
            begin = max(start[i], covered[p])
            finish = min(end[i], end[p])
            if finish > begin:
                own[p] -= finish - begin
                covered[p] = finish


# The functions below write into arrays of the caller, which decides how they are allocated.


@compiled
def _sum_up(parent, total):  # type: ignore[no-untyped-def]
    for i in range(len(parent) - 1, -1, -1):
        if parent[i] >= 0:
            total[parent[i]] += total[i]


@compiled
def _sum_down(parent, total):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        if parent[i] >= 0:
            total[i] += total[parent[i]]


@compiled
def _first_on_path(parent, found):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        if parent[i] >= 0 and found[parent[i]] >= 0:
            found[i] = found[parent[i]]


@compiled
def _last_on_path(parent, found):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        if found[i] < 0:
            found[i] = found[parent[i]] if parent[i] >= 0 else -1


@compiled
def _nearest_on_path(parent, wanted, found):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        if wanted[i]:
            found[i] = i
        else:
            found[i] = found[parent[i]] if parent[i] >= 0 else -1


@compiled
def _nearest_above(parent, wanted, found):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        p = parent[i]
        found[i] = p if p < 0 or wanted[p] else found[p]


@compiled
def _outermost(parent, wanted, found):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        above = found[parent[i]] if parent[i] >= 0 else -1
        found[i] = i if above < 0 and wanted[i] else above


@compiled
def _lies_in(parent, wanted, found):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        p = parent[i]
        found[i] = p >= 0 and (wanted[p] or found[p])


@compiled
def _is_own(found, own):  # type: ignore[no-untyped-def]
    for i in range(len(found)):
        own[i] = found[i] == i


@compiled
def _holds(parent, wanted, found):  # type: ignore[no-untyped-def]
    for i in range(len(parent) - 1, -1, -1):
        if parent[i] >= 0 and (wanted[i] or found[i]):
            found[parent[i]] = True
