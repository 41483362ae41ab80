"""Waits of the training for batches that worker processes or a reading thread make in advance.

Workers work at their own pace, so a batch does not arrive earlier if the training asks for it earlier. If the training
waited for a batch, it continues no sooner than the recorded arrival of the batch. If the training did not wait, the
batch was ready. Batches that the training itself makes are ordinary work."""

from __future__ import annotations

import re
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
"""A wait is long if it takes at least ``_LONG`` of the quantile ``_LONGEST`` of all waits."""
_EQUAL: Final = 3
"""Long waits recur if at least this many distances between them are equal, or if there are only two, which are
equal."""
_MANY: Final = 2
"""The mean distance is used only if the number of distances is at least this multiple of the mean distance."""
_MOST: Final = 64
"""Maximum distance, in calls, between the waits for workers that take turns."""


def period(waited_ns: IntArray, begins: BoolArray) -> int:
    """Return the distance between long waits, in calls; 1 if long waits do not recur. If there are too few workers and
    they finish their batches at the same time, the distance is their number.

    ``waited_ns`` is the wait of each call or step (0 if none). ``begins`` is the mask of the calls in which an epoch
    begins. Both have shape (n,). The result is the median distance if most distances equal the median. Otherwise, it is
    the mean distance if there are many distances."""
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
"""Paddle's loader with this name makes batches in a thread that runs in parallel to the training."""
_BEGINS: Final = re.compile(r"(^|::)random_$")
"""The operator that draws the seed of the workers when the iteration over a loader begins. No other operator encloses
it."""
_ENTERED_NS: Final = 50_000
"""Operators that begin within this time after the beginning of a call belong to the profiler's label of the call.
Operators that rebuild a batch begin later."""
_HANDED_OVER_NS: Final = 2_000_000
"""Maximum time to unpickle and pin a batch that is ready, without operators that rebuild the batch."""
_HANDED_OVER: Final = 0.1
"""Calls whose wait is up to this quantile of all waits get a ready batch. Their waits show how long that takes."""
_WORKERS: Final = 2
_AHEAD: Final = 2
"""Number of batches that each worker makes in advance. The number of workers follows from recurring waits. If no waits
recur, ``_WORKERS`` workers are assumed."""
_LEAST_NS: Final = 500_000
_LEAST_SHARE: Final = 0.05
"""A call waits if it takes longer than a call that gets a ready batch. The difference must be at least ``_LEAST_NS``,
and at least the share ``_LEAST_SHARE`` of the median step. Smaller differences are variation."""


def loads(trace: Trace) -> IntArray:
    """Return the rows of the outermost data loader calls on the host."""
    loading = trace.rows("kind", DATALOADER)
    return np.flatnonzero(trace.host & loading & ~nesting.lies_in(trace.ints("parent"), loading))


def in_workers(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the calls that get batches from worker processes."""
    return matching(trace, "name", _IN_WORKERS.search)[rows]


def in_thread(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the calls that get batches from a thread of the training process that reads ahead."""
    return matching(trace, "name", _IN_THREAD.search)[rows]


def begins_epoch(trace: Trace, rows: IntArray) -> BoolArray:
    """Return a mask of ``rows``, which are all calls of the loader. It selects the calls in steps in which an epoch
    begins. A step in which an epoch begins has one more call than other steps, or begins an iteration."""
    mask = np.zeros(len(rows), np.bool_)
    rank, step = trace.ints("rank"), trace.ints("step")
    in_steps = np.flatnonzero(step[rows] >= 0)
    if not len(in_steps):
        return mask
    begun = trace.host & matching(trace, "name", _BEGINS.search)
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


def batch_waits(trace: Trace, segments: Segments, leads: BoolArray) -> tuple[IntArray, IntArray, Edges]:
    """Return three values: the segments that wait for a batch, the time of each of these segments if its batch is
    ready, and the edges that delay the following segments until the batches arrive. ``leads`` is the mask of the
    threads that run the steps."""
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
    return node, own_ns[call], edges(BATCH, since, until, lag_ns, rows[call], from_start=True)


def waited(graph: Graph) -> tuple[IntArray, IntArray]:
    """Return two values: the nodes of a recording that wait for a batch, and the time of each wait in ns. The time to
    get a ready batch does not count."""
    links = graph.edges
    until = links.dst[links.cause == BATCH]
    node = until - 1
    return node, graph.start_ns[until] - graph.start_ns[node] - graph.dur_ns[node]


def _idle_calls(trace: Trace, segments: Segments, rows: IntArray) -> IntArray:
    """Return, for each segment, the position in ``rows`` of the call that may wait for a batch in this segment; -1 if
    none."""
    call = np.full(len(trace) + 1, -1, np.int64)  # index -1, for segments without an event, is the last item
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
    """Return, for each wait, the segment with which the making of the batch begins. A wait is the segment ``node`` in
    the call ``call``. The result is the latest of four segments: the first segment of the thread; the first call of the
    epoch, which starts the workers; the segment after the call that requested the batch; and the segment after the
    previous wait, because the workers were late."""
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
