"""Activity of a rank as sets of intervals, and the time of windows that such sets cover.

With device work in the recording, kernels compute. Without, operators compute: time inside an operator (except data
loaders) on any thread, less the communication inside it. Loading is the time of the threads of the steps in the data
loader. Host work is any recorded host event but a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms import intervals
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.model import schema
from perfkit_core.model.schema import DATALOADER, DEVICE_WORK, KERNEL, NESTED_KINDS, OPERATOR, OVERHEAD, STEP
from perfkit_core.model.trace import Trace, once
from perfkit_core.runtime.compile import compiled
from perfkit_core.views.communication.instances import communication
from perfkit_core.views.select import rows_of_rank, threads


@dataclass(frozen=True, slots=True)
class Activity:
    """Disjoint sets of intervals, each a union over the threads or devices of one rank."""

    compute: Intervals
    communication: Intervals
    copy: Intervals
    loading: Intervals
    host: Intervals


@dataclass(frozen=True, slots=True)
class Activities:
    """Masks of events, shape (rows,)."""

    compute: BoolArray
    communication: BoolArray
    copy: BoolArray
    loading: BoolArray
    host: BoolArray
    on_device: bool

    def of(self, trace: Trace, rank: int, chosen: BoolArray | None = None) -> Activity:
        """Return the sets of the chosen events (None: all) of a rank (-1: unknown)."""
        rows = rows_of_rank(trace, rank)

        def members(mask: BoolArray) -> IntArray:
            at = np.flatnonzero(mask[rows] if chosen is None else mask[rows] & chosen[rows])
            return at if isinstance(rows, slice) else rows[at]

        compute, communication = members(self.compute), members(self.communication)
        computing = _union(trace, compute) if self.on_device else _less_inner(trace, compute, communication)
        others = (_union(trace, members(mask)) for mask in (self.copy, self.loading, self.host))
        return Activity(computing, _union(trace, communication), *others)


@once
def activities(trace: Trace) -> Activities:
    talk = communication(trace)
    on_device = has_device_work(trace)
    kernels = trace.rows("kind", KERNEL) & ~talk.device
    operators = trace.host & trace.rows("kind", OPERATOR) & ~talk.calls & ~trace.rows("phase", DATALOADER)
    loading = trace.host & trace.rows("kind", DATALOADER) & step_threads(trace)
    host = trace.host & trace.rows("kind", *(NESTED_KINDS - {STEP}), OVERHEAD)
    copies = trace.rows("kind", schema.MEMCPY, schema.MEMSET)
    computing = kernels if on_device else operators
    return Activities(computing, talk.device | talk.host, copies, loading, host, on_device)


def has_device_work(trace: Trace) -> bool:
    """Return whether device work was recorded; otherwise operators count as computation."""
    return bool(trace.rows("kind", *DEVICE_WORK).any())


@once
def step_threads(trace: Trace) -> BoolArray:
    """Return the mask of events of the threads that run the steps (usually one per rank), shape (rows,)."""
    of_trace = threads(trace)
    runs_steps = np.zeros(len(of_trace), np.bool_)
    runs_steps[of_trace.code[trace.host & trace.rows("kind", STEP)]] = True
    mask: BoolArray = runs_steps[of_trace.code]
    return mask


def _union(trace: Trace, rows: IntArray) -> Intervals:
    return intervals.union_of(rows, trace.ints("start_ns"), trace.end_ns)


def _less_inner(trace: Trace, outer: IntArray, inner: IntArray) -> Intervals:
    """Return the union over threads of the ``outer`` rows less the ``inner`` rows of the same thread."""
    start, end, of_trace = trace.ints("start_ns"), trace.end_ns, threads(trace)
    mixed = np.zeros(len(of_trace), np.bool_)
    mixed[of_trace.code[inner]] = True
    apart = mixed[of_trace.code[outer]]
    alone, outer = _union(trace, outer[~apart]), outer[apart]
    # The threads are put one after the other on one clock, that of the ranks of all edges: times of that many threads
    # would not fit into 64 bits.
    edges = np.unique(np.concatenate([part[rows] for rows in (outer, inner) for part in (start, end)]))
    width = len(edges) + 1

    def on_one_clock(rows: IntArray) -> Intervals:
        place = of_trace.code[rows] * width
        return intervals.union(place + np.searchsorted(edges, start[rows]), place + np.searchsorted(edges, end[rows]))

    first, last = intervals.subtract(on_one_clock(outer), on_one_clock(inner))
    return intervals.union(
        np.concatenate([alone[0], edges[first % width]]), np.concatenate([alone[1], edges[last % width]])
    )


def exclusive_ns(layers: Sequence[Intervals], starts: IntArray, ends: IntArray) -> IntArray:
    """Return the time of each window [start, end) in each layer, then in none; shape (windows, layers + 1). Layers are
    disjoint interval sets in order of precedence: every instant goes to the first that covers it. Values are exact
    integers that sum to the window. Windows may overlap. One sort over all edges serves any number of windows."""
    marks = np.concatenate([starts, ends])
    all_edges, changes = [marks], [np.zeros(len(marks), np.int64)]
    for index, (first, last) in enumerate(layers):
        all_edges += [first, last]
        changes += [np.full(len(first), 1 << index), np.full(len(last), -(1 << index))]
    unordered = np.concatenate(all_edges)
    order = np.argsort(unordered, kind="stable")
    edges, width = unordered[order], np.diff(unordered[order])
    covering = np.cumsum(np.concatenate(changes)[order])[:-1]  # one bit per layer
    # lookup table: set of covering layers → the first in precedence
    lowest_bit = np.full(1 << len(layers), len(layers), np.int64)
    for bit in reversed(range(len(layers))):
        lowest_bit[np.arange(1 << len(layers)) & (1 << bit) != 0] = bit
    owner = lowest_bit[covering]

    result = np.empty((len(starts), len(layers) + 1), np.int64)
    begin, end = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    for index in range(len(layers) + 1):
        passed = np.append(0, np.cumsum(np.where(owner == index, width, 0)))
        result[:, index] = passed[end] - passed[begin]
    return result


def covered_ns(layer: Intervals, starts: IntArray, ends: IntArray) -> IntArray:
    """Return the time of each window [start, end) that a disjoint set covers, shape (windows,)."""
    first, last = layer
    result = np.empty(len(starts), np.int64)
    _cover(first, last, np.append(0, np.cumsum(last - first)), starts, ends, result)
    return result


@compiled(steps=5)
def _cover(first, last, passed, starts, ends, found):  # type: ignore[no-untyped-def]
    """``passed``: length of the set before each of its intervals."""
    for i in range(len(starts)):
        found[i] = _until(first, last, passed, ends[i]) - _until(first, last, passed, starts[i])


@compiled
def _until(first, last, passed, time):  # type: ignore[no-untyped-def]
    begun = np.searchsorted(first, time, side="right")
    return passed[begun] - max(last[begun - 1] - time, 0) if begun else 0
