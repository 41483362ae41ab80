"""The activities of a rank as sets of time intervals, and the time that an interval set covers in given windows.

- Computation is the time of kernels that do not communicate. Without device work, it is the time in operators except
  data loaders, less the communication inside them. Operators that run before an asynchronous send or receive on the
  host ends are not inside it.
- Loading is the time in the data loader on the threads that run steps.
- Host work is the time of all recorded host events except steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfkit_core.base.algorithms import groupby, intervals, nesting
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.algorithms.intervals import Intervals
from perfkit_core.trace.assembly.labels import parse_input_label
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.collective import HOST
from perfkit_core.trace.model.schema import DATALOADER, DEVICE_WORK, KERNEL, NESTED_KINDS, OPERATOR, OVERHEAD, STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import POINT_TO_POINT, communication, descriptions
from perfkit_core.views.select import marked, rows_of_rank, threads


@dataclass(frozen=True, slots=True)
class Activity:
    """Interval sets of one rank. Each set is the union, over all threads and devices, of the events of one activity."""

    compute: Intervals
    communication: Intervals
    copy: Intervals
    loading: Intervals
    host: Intervals


@dataclass(frozen=True, slots=True)
class Activities:
    """Masks of the events of each activity, shape (rows,)."""

    compute: BoolArray
    communication: BoolArray
    blocking: BoolArray  # host calls whose operators do not compute
    copy: BoolArray
    loading: BoolArray
    host: BoolArray
    on_device: bool

    def of(self, trace: Trace, rank: int, chosen: BoolArray | None = None) -> Activity:
        """Return the interval sets of the ``chosen`` events (None: all events) of a rank (-1: unknown rank)."""
        rows = rows_of_rank(trace, rank)

        def members(mask: BoolArray) -> IntArray:
            at = np.flatnonzero(mask[rows] if chosen is None else mask[rows] & chosen[rows])
            return at if isinstance(rows, slice) else rows[at]

        compute, communication = members(self.compute), members(self.communication)
        computing = _union(trace, compute) if self.on_device else _less_inner(trace, compute, members(self.blocking))
        other_sets = (_union(trace, members(mask)) for mask in (self.copy, self.loading, self.host))
        return Activity(computing, _union(trace, communication), *other_sets)


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
    labels = descriptions(trace)
    asynchronous = (labels["on"] == HOST) & labels["name"].isin(POINT_TO_POINT)
    blocking = trace.host & (trace.rows("kind", schema.COMMUNICATION) | talk.calls)
    blocking &= ~marked(trace, labels.index[asynchronous].to_numpy(np.int64))
    return Activities(computing, talk.device | talk.host, blocking, copies, loading, host, on_device)


def loader_calls(trace: Trace) -> BoolArray:
    """Return the mask of the calls of data loaders on the host, shape (rows,). Of nested calls, only the outermost
    counts. A wait of ``perfkit.profile`` in which a framework's loader is called does not count, but that call does."""
    parent, names = trace.ints("parent"), trace.codes("name")
    loading = trace.host & trace.rows("kind", DATALOADER)
    labelled = np.array([parse_input_label(name) is not None for name in names.values], np.bool_)
    waits = loading & names.lookup(labelled, False)
    loaders = loading & ~waits
    loaders &= ~nesting.lies_in(parent, loaders)
    around = nesting.nearest_above(parent, waits)[loaders]
    waits &= ~nesting.lies_in(parent, loading)
    waits[around[around >= 0]] = False
    mask: BoolArray = loaders | waits
    return mask


def has_device_work(trace: Trace) -> bool:
    """Return whether device work was recorded. If not, operators count as computation."""
    return bool(trace.rows("kind", *DEVICE_WORK).any())


@once
def step_threads(trace: Trace) -> BoolArray:
    """Return the mask of events on threads that run steps (usually one thread per rank), shape (rows,)."""
    all_threads = threads(trace)
    runs_steps = np.zeros(len(all_threads), np.bool_)
    runs_steps[all_threads.code[trace.host & trace.rows("kind", STEP)]] = True
    mask: BoolArray = runs_steps[all_threads.code]
    return mask


def _union(trace: Trace, rows: IntArray) -> Intervals:
    return intervals.union_of(rows, trace.ints("start_ns"), trace.end_ns)


def _less_inner(trace: Trace, outer: IntArray, inner: IntArray) -> Intervals:
    """Return the union over all threads of what ``outer`` rows cover and ``inner`` rows of the same thread do not."""
    thread = threads(trace).code
    inner_threads = np.unique(thread[inner])
    mixed = np.isin(thread[outer], inner_threads)
    sets, outer = [_union(trace, outer[~mixed])], outer[mixed]
    by_thread = (groupby.parts(np.searchsorted(inner_threads, thread[r]), len(inner_threads)) for r in (outer, inner))
    for outer_part, inner_part in zip(*by_thread, strict=True):
        sets.append(intervals.subtract(_union(trace, outer[outer_part]), _union(trace, inner[inner_part])))
    return intervals.union(*(np.concatenate(edges) for edges in zip(*sets, strict=True)))


def exclusive_ns(layers: Sequence[Intervals], starts: IntArray, ends: IntArray) -> IntArray:
    """Return how much of each window [start, end) belongs to each layer, in ns, shape (windows, layers + 1).

    The layers are interval sets in order of precedence: each instant belongs to the first layer that covers the
    instant. The last column is the time that no layer covers. Each row sums to the length of its window. Windows may
    overlap.
    """
    marks = np.concatenate([starts, ends])
    all_edges, changes = [marks], [np.zeros(len(marks), np.int64)]
    for index, (first, last) in enumerate(layers):
        all_edges += [first, last]
        changes += [np.full(len(first), 1 << index), np.full(len(last), -(1 << index))]
    unordered = np.concatenate(all_edges)
    order = np.argsort(unordered, kind="stable")
    edges, width = unordered[order], np.diff(unordered[order])
    covering = np.cumsum(np.concatenate(changes)[order])[:-1]  # bit i is set if layer i covers edges[j]..edges[j + 1]
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
