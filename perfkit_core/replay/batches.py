"""The waits of the training for batches that others make ahead of it.

Worker processes of a data loader, and a thread of it that reads ahead, work at their own pace: their batch arrives no
earlier because the training asks for it earlier. So where the training waited, it goes on no sooner than the batch
was recorded to arrive; where it did not wait, the batch was ready. What the training makes itself is ordinary work,
also within a call of the loader: where operators rebuild the batch in it, the wait ends with the last of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.schema import DATALOADER, OPERATOR, RUNTIME, STEP, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.replay.graph import BATCH, Edges, Graph, edges
from perfkit_core.replay.host_segments import Segments, matching

_LONG: Final = 0.5
_LONGEST: Final = 0.9
"""Waits are long from this share of such a quantile of them on."""
_EQUAL: Final = 3
"""This many equal distances are no chance; two, where there are no others."""
_MANY: Final = 2
"""Distances are many from this ratio of their number to their length on: each part of the recording has some."""
_MOST: Final = 64
"""Waits that are further apart are not those of workers that take turns."""


def period(waited_ns: IntArray, begins: BoolArray) -> int:
    """Return how many calls long waits are apart, 1 where they do not recur: workers that are too few make their
    batches at the same time, so one of as many calls as there are workers has a long wait.

    ``waited_ns`` is how long each call (or step) waits (0: not at all), ``begins`` the mask of those in which an epoch
    begins, both of shape (n,). The result is the distance of most long waits, or the mean of very many."""
    waits = waited_ns > 0
    if not waits.any():
        return 1
    long = np.flatnonzero(waits & (waited_ns >= _LONG * np.quantile(waited_ns[waits], _LONGEST)))
    epoch = np.cumsum(begins)[long]
    apart = np.diff(long)[epoch[1:] == epoch[:-1]]
    if len(apart) < 2:
        return 1
    usual, mean = int(np.median(apart)), round(float(np.mean(apart)))
    equal = int((apart == usual).sum())
    if equal >= max(min(_EQUAL, len(apart)), len(apart) / 2) and usual <= _MOST:
        return usual
    return mean if len(apart) >= _MANY * mean else 1


_IN_WORKERS: Final = re.compile(r"multi[-_ ]?process", re.IGNORECASE)
_IN_THREAD: Final = re.compile(r"DataLoaderIterSingleProcess")
"""The loader of this name makes batches in a thread beside the training; that of the other framework, whose name has
the same words in another order, in the training's own thread."""
_BEGINS: Final = re.compile(r"(^|::)random_$")
"""The operator that draws the seed of the workers when the iteration over a loader begins. It is outside all other
operators."""
_ENTERED_NS: Final = 50_000
"""Operators that begin this soon in a call are those of the profiler that marks it: a batch is rebuilt later."""
_HANDED_OVER_NS: Final = 2_000_000
"""Getting a batch that is ready takes no longer, except for what operators rebuild: it is unpickled and pinned."""
_HANDED_OVER: Final = 0.1
"""Quantile of the calls of a loader that wait least: they show what getting a batch takes that is ready."""
_WORKERS: Final = 2
_AHEAD: Final = 2
"""Each worker has this many batches to make: when one is handed over, the next one is asked for. Only the rhythm of the
waits shows how many workers there are; otherwise ``_WORKERS`` are assumed."""
_LEAST_NS: Final = 500_000
_LEAST_SHARE: Final = 0.05
"""A call that takes this much longer than getting a batch waits, in ns and of the median step: less is variation."""


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """Segments in which the training waits for a batch, ``node``, and what each takes when the batch is ready,
    ``busy_ns``, of shape (waits,); ``edges`` let what follows them begin when the batch arrives."""

    node: IntArray
    busy_ns: IntArray
    edges: Edges


def loads(trace: Trace) -> IntArray:
    """Return the rows of the calls of data loaders on the host, without those within another."""
    loading = trace.rows("kind", DATALOADER)
    return np.flatnonzero(trace.host & loading & ~nesting.lies_in(trace.ints("parent"), loading))


def in_workers(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the calls that get batches made by worker processes."""
    return matching(trace, "name", _IN_WORKERS)[rows]


def in_thread(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the calls that get batches that a thread of the process makes ahead of the training."""
    return matching(trace, "name", _IN_THREAD)[rows]


def begins_epoch(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the calls (all of a recording) in steps in which an epoch begins: the loader is called once
    more than in other steps, because it has come to its end, or its iteration begins anew."""
    mask = np.zeros(len(rows), np.bool_)
    rank, step = trace.ints("rank"), trace.ints("step")
    in_steps = np.flatnonzero(step[rows] >= 0)
    if not len(in_steps):
        return mask
    begun = trace.host & matching(trace, "name", _BEGINS)
    begun &= ~nesting.lies_in(trace.ints("parent"), trace.rows("kind", DATALOADER, OPERATOR))
    events = np.append(rows[in_steps], np.flatnonzero(begun & (step >= 0)))
    key, count = groupby.distinct([rank[events], step[events]], len(events))[0], len(in_steps)
    steps = np.unique(key[:count])
    more = np.zeros(int(key.max()) + 1, np.bool_)
    for part in (key[:count], key[count:]):
        calls = np.bincount(part, minlength=len(more))
        more |= calls > np.median(calls[steps])
    mask[in_steps] = more[key[:count]]
    return mask


def batch_waits(trace: Trace, segments: Segments, leads: BoolArray) -> BatchWaits:
    """Return the waits of the threads that run the steps (``leads``, shape (threads,))."""
    rows = loads(trace)
    begins = begins_epoch(trace, rows)
    kept = segments.first[rows] >= 0
    kept[kept] = leads[segments.thread[segments.first[rows[kept]]]]
    kept &= in_workers(trace, rows) | in_thread(trace, rows)
    rows, begins = rows[kept], begins[kept]
    of_segment = _idle_calls(trace, segments, rows)
    length = segments.end_ns - segments.start_ns
    longest = np.zeros(len(rows), np.int64)
    np.maximum.at(longest, of_segment[of_segment >= 0], length[of_segment >= 0])
    rank, dur = trace.ints("rank"), trace.ints("dur_ns")
    recorded_steps = trace.host & trace.rows("kind", STEP)
    own_ns, waits = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    for number in np.unique(rank[rows]):
        here = np.flatnonzero((rank[rows] == number) & ~begins)
        if not len(here):
            continue
        own_ns[here] = min(int(np.quantile(longest[here], _HANDED_OVER)), _HANDED_OVER_NS)
        steps = dur[recorded_steps & (rank == number)]
        varies = max(_LEAST_NS, _LEAST_SHARE * float(np.median(steps)) if len(steps) else 0.0)
        waits[here] = longest[here] - own_ns[here] > varies
    least = np.where(waits, np.maximum(own_ns, _LEAST_NS), np.iinfo(np.int64).max)
    node = np.flatnonzero((of_segment >= 0) & (length > np.append(least, 0)[of_segment]))
    call = of_segment[node]
    since, until = _since(segments, rows, begins, node, call, length[node]), node + 1
    lag_ns = segments.start_ns[until] - segments.start_ns[since]
    return BatchWaits(node, own_ns[call], edges(BATCH, since, until, lag_ns, rows[call], from_start=True))


def waited(graph: Graph) -> tuple[IntArray, IntArray]:
    """Return the nodes of a recording that wait for a batch, and how long beyond their time with a ready batch, in
    ns."""
    links = graph.edges
    until = links.dst[links.cause == BATCH]
    node = until - 1
    return node, graph.start_ns[until] - graph.start_ns[node] - graph.dur_ns[node]


def _idle_calls(trace: Trace, segments: Segments, rows: IntArray) -> IntArray:
    """Return for each segment the position of the call that may wait in it: nothing else happens in it, and operators
    that rebuild the batch, if the call has any, are still to come. -1: no call."""
    call = np.full(len(trace) + 1, -1, np.int64)  # the last item is that of no event
    call[rows] = np.arange(len(rows))
    call[:-1] = nesting.first_on_path(trace.ints("parent"), call[:-1])
    start = trace.ints("start_ns")
    rebuild = np.flatnonzero(trace.rows("kind", OPERATOR) & (call[:-1] >= 0))
    rebuild = rebuild[start[rebuild] - start[rows[call[rebuild]]] > _ENTERED_NS]
    until = trace.end_ns[rows]
    until[np.unique(call[rebuild])] = 0
    np.maximum.at(until, call[rebuild], start[rebuild])
    call[:-1][trace.rows("kind", OPERATOR, RUNTIME, SYNC)] = -1
    of_segment: IntArray = call[segments.row]
    return np.where(segments.start_ns < np.append(until, 0)[of_segment], of_segment, -1)


def _since(
    segments: Segments, rows: IntArray, begins: BoolArray, node: IntArray, call: IntArray, waited_ns: IntArray
) -> IntArray:
    """Return for each wait (``node``, of the ``call``) the segment from which the making of its batch is counted, the
    latest of these: the first one of the thread; the first call of the epoch, which starts the workers; the end of the
    call with which the batch was asked for; the end of the wait before, since which the workers are behind."""
    thread = segments.thread[segments.first[rows]]
    since = np.searchsorted(segments.thread, thread)
    waits = np.zeros(len(rows), np.int64)
    np.add.at(waits, call, waited_ns)
    for number in np.unique(thread):
        own = np.flatnonzero(thread == number)
        own = own[np.argsort(segments.first[rows[own]], kind="stable")]
        starts = begins[own] & ~np.append(False, begins[own][:-1])
        latest = np.maximum.accumulate(np.where(starts, segments.first[rows[own]], -1))
        asked = _AHEAD * max(period(waits[own], starts), _WORKERS)
        latest[asked:] = np.maximum(latest[asked:], segments.after[rows[own[:-asked]]])
        since[own] = np.maximum(since[own], latest)
    before = np.append(0, node[:-1] + 1)[: len(node)]
    same = np.append(False, segments.thread[node[1:]] == segments.thread[node[:-1]])[: len(node)]
    return np.maximum(since[call], np.where(same, before, 0))
