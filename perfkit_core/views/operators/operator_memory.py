"""How many bytes did each host event allocate, less what it freed, on the host and on devices?

A memory event belongs to the innermost host event of its own thread. Natively it belongs to every event of any thread
whose time contains it, and what no event contains is a row of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms import intervals, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import MEMORY, NESTED_KINDS
from perfkit_core.model.trace import Trace, once
from perfkit_core.views.memory.events import counted_bytes, memory_events
from perfkit_core.views.select import rank_codes


@dataclass(frozen=True, slots=True)
class Bytes:
    """``self`` and ``total`` bytes of each event on the host and on devices, shape (rows,)."""

    self_cpu: IntArray
    total_cpu: IntArray
    self_device: IntArray
    total_device: IntArray


def recorded(trace: Trace) -> bool:
    """Whether memory events were recorded at all."""
    return bool(trace.rows("kind", MEMORY).any())


@once
def host_bytes(trace: Trace, native: bool = False) -> Bytes:
    """Bytes of every host event; ``native`` by time, whatever the thread."""
    found: list[IntArray] = []
    for on_host in (True, False):
        change = _changes(trace, on_host)
        found += _by_time(trace, change) if native else _by_parent(trace, change)
    return Bytes(*found)


def uncovered(trace: Trace) -> BoolArray:
    """Memory events that lie in the time of no host event of their rank, shape (rows,)."""
    rank, count = rank_codes(trace)
    spans = _spans(trace)
    alone: BoolArray = trace.rows("kind", MEMORY) & (_changes(trace, True) + _changes(trace, False) != 0)
    start, end = trace.ints("start_ns"), trace.end_ns
    for one in range(count):
        mine = spans & (rank == one)
        starts, ends = intervals.union(start[mine], end[mine] + 1)
        rows = np.flatnonzero(alone & (rank == one))
        before = np.searchsorted(starts, start[rows], side="right") - 1
        alone[rows] = (before < 0) | (start[rows] >= np.append(ends, 0)[before])
    return alone


def _changes(trace: Trace, on_host: bool) -> IntArray:
    """Bytes of the memory events of the host or of all devices, 0 elsewhere, shape (rows,)."""
    events = memory_events(trace)
    change = np.zeros(len(trace), np.int64)
    change[events.row] = counted_bytes(events)
    change[trace.host != on_host] = 0
    return change


def _by_parent(trace: Trace, change: IntArray) -> tuple[IntArray, IntArray]:
    parent = trace.ints("parent")
    own = np.zeros(len(trace), np.int64)
    inside = (change != 0) & (parent != NO_ROW)
    np.add.at(own, parent[inside], change[inside])
    return own, nesting.sum_up(parent, own)


def _by_time(trace: Trace, change: IntArray) -> tuple[IntArray, IntArray]:
    """Both ends of an event count."""
    rank, count = rank_codes(trace)
    spans, start, parent = _spans(trace), trace.ints("start_ns"), trace.ints("parent")
    total = np.zeros(len(trace), np.int64)
    for one in range(count):
        events = np.flatnonzero((change != 0) & (rank == one))  # rows are sorted by start
        sums = np.append(0, np.cumsum(change[events]))
        rows = np.flatnonzero(spans & (rank == one))
        first = np.searchsorted(start[events], start[rows], side="left")
        last = np.searchsorted(start[events], trace.end_ns[rows], side="right")
        total[rows] = sums[last] - sums[first]
    own = total.copy()
    children = np.flatnonzero(spans & (parent != NO_ROW))
    np.subtract.at(own, parent[children], total[children])
    return own, total


def _spans(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", *NESTED_KINDS)
