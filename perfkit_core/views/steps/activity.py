"""What a rank does at which time: sets of intervals of computation, communication, copies, loading and host work.

With device work in the recording, kernels compute and the host launches them. Without, operators compute: time inside
an operator (not that of loading data) on any thread, less the communication inside it. Loading is what the threads that
run the steps spend in the data loader. Host work is any recorded host event but a step: operators, calls of the device
runtime, Python frames, labelled ranges, overhead of the profiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms import intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.model.schema import (
    DATALOADER,
    DEVICE_WORK,
    KERNEL,
    MEMCPY,
    MEMSET,
    NESTED_KINDS,
    OPERATOR,
    OVERHEAD,
    STEP,
)
from perfkit_core.model.trace import Trace, once
from perfkit_core.runtime.compile import compiled
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.select import rows_of_rank, threads


def exclusive_ns(layers: Sequence[Intervals], starts: IntArray, ends: IntArray) -> IntArray:
    """Time of each window [start, end) that goes to each layer, then to none; shape (windows, layers + 1).

    Windows may overlap. One sort over all edges, whatever the number of windows.
    """
    edges, owner = _owners(layers, np.concatenate([starts, ends]))
    width = np.diff(edges)
    result = np.empty((len(starts), len(layers) + 1), np.int64)
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    for index in range(len(layers) + 1):
        passed = np.append(0, np.cumsum(np.where(owner == index, width, 0)))
        result[:, index] = passed[last] - passed[first]
    return result


def covered_ns(layer: Intervals, starts: IntArray, ends: IntArray) -> IntArray:
    """Time of each window [start, end) that a disjoint set covers, shape (windows,)."""
    first, last = layer
    found = np.empty(len(starts), np.int64)
    _cover(first, last, np.append(0, np.cumsum(last - first)), starts, ends, found)
    return found


@compiled(steps=5)
def _cover(first, last, passed, starts, ends, found):  # type: ignore[no-untyped-def]
    """``passed``: what the set covers before each of its intervals."""
    for i in range(len(starts)):
        found[i] = _until(first, last, passed, ends[i]) - _until(first, last, passed, starts[i])


@compiled
def _until(first, last, passed, time):  # type: ignore[no-untyped-def]
    """What a disjoint set covers before a time."""
    begun = np.searchsorted(first, time, side="right")
    return passed[begun] - max(last[begun - 1] - time, 0) if begun else 0


def _owners(layers: Sequence[Intervals], marks: IntArray) -> tuple[IntArray, IntArray]:
    """All edges in order, and between each two of them the first layer that covers it (their number: none does)."""
    edges, changes = [marks], [np.zeros(len(marks), np.int64)]
    for index, (starts, ends) in enumerate(layers):
        edges += [starts, ends]
        changes += [np.full(len(starts), 1 << index), np.full(len(ends), -(1 << index))]
    every = np.concatenate(edges)
    order = np.argsort(every, kind="stable")
    covering = np.cumsum(np.concatenate(changes)[order])[:-1]
    return every[order], _lowest_bit(len(layers))[covering]


def _lowest_bit(bits: int) -> IntArray:
    """Position of the lowest bit that is set in each number below 2 ** bits; ``bits`` for 0."""
    lowest = np.full(1 << bits, bits, np.int64)
    for bit in reversed(range(bits)):
        lowest[np.arange(1 << bits) & (1 << bit) != 0] = bit
    return lowest


@dataclass(frozen=True, slots=True)
class Activity:
    """Disjoint sets, each a union over the threads or the devices of one rank."""

    compute: Intervals
    communication: Intervals
    copy: Intervals
    loading: Intervals
    host: Intervals


@dataclass(frozen=True, slots=True)
class Activities:
    """Masks of shape (rows,) of what the events are; :meth:`of` unites those of one rank."""

    trace: Trace
    compute: BoolArray
    communication: BoolArray
    copy: BoolArray
    loading: BoolArray
    host: BoolArray
    on_device: bool

    def of(self, rank: int, chosen: BoolArray | None = None) -> Activity:
        """The sets of the chosen events (None: all) of a rank, as in the column (-1: unknown)."""
        rows = rows_of_rank(self.trace, rank)

        def those(mask: BoolArray) -> IntArray:
            found = np.flatnonzero(mask[rows] if chosen is None else mask[rows] & chosen[rows])
            return found if isinstance(rows, slice) else rows[found]

        others = (self.communication, self.copy, self.loading, self.host)
        sets = (_union(self.trace, those(mask)) for mask in others)
        return Activity(self._compute(those(self.compute), those(self.communication)), *sets)

    def _compute(self, compute: IntArray, communication: IntArray) -> Intervals:
        if self.on_device:
            return _union(self.trace, compute)
        return _less_inner(self.trace, compute, communication)


def activities(trace: Trace) -> Activities:
    """What each event of the trace is."""
    return Activities(trace, *_masks(trace))


@once
def _masks(trace: Trace) -> tuple[BoolArray, BoolArray, BoolArray, BoolArray, BoolArray, bool]:
    """The fields of Activities after ``trace``."""
    talk = communication(trace)
    on_device = has_device_work(trace)
    kernels = trace.rows("kind", KERNEL) & ~talk.device
    operators = trace.host & trace.rows("kind", OPERATOR) & ~talk.calls & ~trace.rows("phase", DATALOADER)
    loading = trace.host & trace.rows("kind", DATALOADER) & step_threads(trace)
    host = trace.host & trace.rows("kind", *(NESTED_KINDS - {STEP}), OVERHEAD)
    copies = trace.rows("kind", MEMCPY, MEMSET)
    return kernels if on_device else operators, talk.device | talk.host, copies, loading, host, on_device


def has_device_work(trace: Trace) -> bool:
    """Whether anything ran on a device: else the operators themselves are the computation."""
    return bool(trace.rows("kind", *DEVICE_WORK).any())


@once
def step_threads(trace: Trace) -> BoolArray:
    """True for events of the threads that run the steps (one a rank, as a rule), shape (rows,)."""
    found = threads(trace)
    runs = np.zeros(len(found), np.bool_)
    runs[found.code[trace.host & trace.rows("kind", STEP)]] = True
    mask: BoolArray = runs[found.code]
    return mask


def _union(trace: Trace, rows: IntArray) -> Intervals:
    return intervals.union_of(rows, trace.ints("start_ns"), trace.end_ns)


def _less_inner(trace: Trace, outer: IntArray, inner: IntArray) -> Intervals:
    """Union of the ``outer`` rows, on each thread less the ``inner`` rows of that thread."""
    found = threads(trace)
    mixed = np.zeros(len(found), np.bool_)
    mixed[found.code[inner]] = True
    apart = mixed[found.code[outer]]
    rest = _subtracted(trace, outer[apart], inner, found.code, len(found))
    alone = _union(trace, outer[~apart])
    return intervals.union(np.concatenate([alone[0], rest[0]]), np.concatenate([alone[1], rest[1]]))


def _subtracted(trace: Trace, outer: IntArray, inner: IntArray, thread: IntArray, count: int) -> Intervals:
    """Threads one after the other on one clock, that of the ranks of all edges: times would not fit into 64 bits."""
    start, end = trace.ints("start_ns"), trace.end_ns
    edges = np.unique(np.concatenate([part[rows] for rows in (outer, inner) for part in (start, end)]))

    def laid_out(rows: IntArray) -> Intervals:
        place = thread[rows] * (len(edges) + 1)
        return intervals.union(place + np.searchsorted(edges, start[rows]), place + np.searchsorted(edges, end[rows]))

    left = intervals.subtract(laid_out(outer), laid_out(inner))
    return edges[left[0] % (len(edges) + 1)], edges[left[1] % (len(edges) + 1)]
