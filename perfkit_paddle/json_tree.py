"""The tree behind Paddle's JSON, from the order of the events.

The file has no parents, and rounded times cannot always tell them. But Paddle writes each thread's tree level by level
(breadth first), and after each host event the runtime calls and memory events that hang on it. So the parent of an
event is never before the parent of the event written before it, and times need only decide between neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit_core import nesting
from perfkit_core.compiling import compiled
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import BoolArray, IntArray


def parents(
    thread: IntArray, host: BoolArray, hangs: BoolArray, start: IntArray, end: IntArray, slack: IntArray
) -> tuple[IntArray, int]:
    """Row of the parent of each row, and the number of threads whose order is not Paddle's (nested by time then).

    Rows are in file order; ``host`` are nodes of the tree, ``hangs`` belong to the node before them; ``slack`` is how
    far the times of a row may be off. All of shape (rows,).
    """
    parent = np.full(len(thread), NO_ROW, np.int64)
    odd = 0
    for rows in _by_thread(thread, np.flatnonzero(host | hangs)):
        found, sound = _level_by_level(host[rows], start[rows], end[rows], slack[rows])
        if not sound:
            odd += 1
            found = nesting.nest(np.zeros(len(rows), np.int64), start[rows], end[rows])
        parent[rows] = np.where(found == NO_ROW, NO_ROW, rows[found])
    return parent, odd


def _by_thread(thread: IntArray, rows: IntArray) -> list[npt.NDArray[Any]]:
    order = rows[np.argsort(thread[rows], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(thread[order])) + 1) if len(order) else []


@compiled
def _level_by_level(host, start, end, slack):  # type: ignore[no-untyped-def]
    """Parents within one thread, and whether each event found one that encloses it."""
    count = len(host)
    parent = np.full(count, -1, np.int64)
    node = -1  # the last host event: what follows hangs on it
    current = -1  # the parent whose children are being written; -1: the root
    for i in range(count):
        if not host[i]:
            parent[i] = node
            continue
        before = node
        node = i
        if before < 0 or (parent[before] == current and _follows(current, before, i, start, end, slack)):
            parent[i] = current
            continue
        found = _next_parent(host, current, i, start, end, slack)
        if found < 0 and current >= 0 and _misfit(current, i, start, end) <= slack[current] + slack[i]:
            found = current  # a sibling out of order: Paddle does not sort what overlaps
        if found < 0:
            return parent, False
        current = found
        parent[i] = found
    return parent, True


@compiled
def _misfit(outer, inner, start, end):  # type: ignore[no-untyped-def]
    """By how much an event sticks out of another."""
    return max(start[outer] - start[inner], end[inner] - end[outer], 0)


@compiled
def _follows(current, before, i, start, end, slack):  # type: ignore[no-untyped-def]
    """Whether ``i`` can be the next sibling of ``before`` below ``current``."""
    if start[i] + slack[i] + slack[before] < end[before]:
        return False
    return current < 0 or _misfit(current, i, start, end) <= slack[current] + slack[i]


@compiled
def _next_parent(host, current, i, start, end, slack):  # type: ignore[no-untyped-def]
    """The next node that encloses ``i``; of two in a row that do within the slack, the one that fits better."""
    best = -1
    for candidate in range(current + 1, i):
        if not host[candidate]:
            continue
        misfit = _misfit(candidate, i, start, end)
        if best >= 0:
            return candidate if misfit < _misfit(best, i, start, end) else best
        if misfit <= slack[candidate] + slack[i]:
            best = candidate
            if misfit == 0:
                return best
    return best
