"""Waits of the training for batches that worker processes or a reading thread make in advance.

The replay keeps the recorded time that the workers took to make a batch. If the training asks for the batch earlier, it
waits longer. If the recorded training did not wait for a batch, the batch was ready. Batches that the training itself
makes are ordinary work."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.replay.graph import BATCH, Edges, Graph, edges
from perfkit_core.replay.host_segments import Segments, matching
from perfkit_core.trace.model.schema import DATALOADER, OPERATOR, RUNTIME, STEP, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.steps.activity import loader_calls

_LONG: Final = 0.5
_LONGEST: Final = 0.9
"""A wait is long if it takes at least half as long as the 90th percentile of all waits."""
_EQUAL: Final = 3
"""``period`` returns the median of the ``n`` distances between long waits if enough distances are equal to the median:
at least ``max(n / 2, min(_EQUAL, n))``."""
_MANY: Final = 2
"""If the median is rejected, ``period`` returns the mean m if there are at least ``_MANY * m`` distances, else 1."""
_MOST: Final = 64
"""Maximum distance between recurring long waits, in calls."""


def period(waited_ns: IntArray, begins: BoolArray) -> int:
    """Return the number of calls from one long wait to the next. The result is 1 if long waits do not recur.

    For example, 4 slow workers finish their batches at the same time. Then every 4th call waits long, and the result is
    4. If the distances between long waits differ, the result is their median or, with enough distances, their mean.

    - ``waited_ns``: wait of each call or step, 0 if none, shape (n,).
    - ``begins``: mask of the calls in which an epoch begins, shape (n,)."""
    waits = waited_ns > 0
    if not waits.any():
        return 1
    long = np.flatnonzero(waits & (waited_ns >= _LONG * np.quantile(waited_ns[waits], _LONGEST)))
    epoch = np.cumsum(begins)[long]
    distances = np.diff(long)[epoch[1:] == epoch[:-1]]
    if len(distances) < 2:
        return 1
    usual, mean = int(np.median(distances)), round(float(np.mean(distances)))
    equal = int((distances == usual).sum())
    if equal >= max(min(_EQUAL, len(distances)), len(distances) / 2) and usual <= _MOST:
        return usual
    return mean if len(distances) >= _MANY * mean else 1


_IN_WORKERS: Final = re.compile(r"multi[-_ ]?process", re.IGNORECASE)
_IN_THREAD: Final = re.compile(r"DataLoaderIterSingleProcess")
"""Paddle's loader with this name makes batches in a thread that runs in parallel to the training."""
_BEGINS: Final = re.compile(r"(^|::)random_$")
"""Name of the outermost operator that draws the seed of the workers when the iteration over a loader begins."""
_READS_SEED: Final = 2
"""Maximum number of operators between the one that draws the seed and the first loader call: they read the seed."""
_ENTERED_NS: Final = 50_000
"""The profiler runs operators to label a loader call. Operators that begin within this time after the start of the call
are attributed to the profiler. Later operators rebuild the batch that a worker sent."""
_HANDED_OVER_NS: Final = 2_000_000
"""Maximum time to unpickle and pin a ready batch. Operators that rebuild the batch take additional time."""
_HANDED_OVER: Final = 0.1
"""The time to get a ready batch is estimated from the waits of all loader calls: ``quantile(waits, _HANDED_OVER)``."""
_WORKERS: Final = 2
"""Minimum number of workers. ``period`` estimates the actual number."""
_AHEAD: Final = 2
"""Number of batches that each worker makes in advance."""
_LEAST_NS: Final = 500_000
_LEAST_SHARE: Final = 0.05
"""A call waited for its batch if it took longer than a call that gets a ready batch. The difference must exceed
both ``_LEAST_NS`` and the share ``_LEAST_SHARE`` of the median step time. Smaller differences are variation."""


def loads(trace: Trace) -> IntArray:
    """Return the rows of the calls of data loaders on the host."""
    return np.flatnonzero(loader_calls(trace))


def in_workers(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the calls that get batches from worker processes."""
    return matching(trace, "name", _IN_WORKERS.search)[rows]


def in_thread(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the calls that get their batches from a background thread of the training process."""
    return matching(trace, "name", _IN_THREAD.search)[rows]


def begins_epoch(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the loader calls ``rows`` that lie in a step in which an epoch begins. Such a step has more
    loader calls than usual, or begins an iteration over a loader."""
    mask = np.zeros(len(rows), np.bool_)
    rank, step = trace.ints("rank"), trace.ints("step")
    in_steps = np.flatnonzero(step[rows] >= 0)
    if not len(in_steps):
        return mask
    begun = _begun(trace)
    events = np.append(rows[in_steps], begun[step[begun] >= 0])
    key, count = groupby.distinct([rank[events], step[events]], len(events))[0], len(in_steps)
    steps = np.unique(key[:count])
    more = np.zeros(int(key.max()) + 1, np.bool_)
    for part in (key[:count], key[count:]):
        calls = np.bincount(part, minlength=len(more))
        more |= calls > np.median(calls[steps])
    mask[in_steps] = more[key[:count]]
    return mask


def _begun(trace: Trace) -> IntArray:
    """Return the rows of the operators with which the iteration over a loader begins."""
    begun = trace.host & matching(trace, "name", _BEGINS.search)
    return np.flatnonzero(begun & ~nesting.lies_in(trace.ints("parent"), trace.rows("kind", DATALOADER, OPERATOR)))


def begins_iteration(trace: Trace, rows: IntArray) -> BoolArray:
    """Return the mask of the loader calls ``rows`` that get the first batch of an iteration over a loader. No worker
    can make this batch in advance. Where more operators run between a drawn number and the call, the number is not the
    seed of the workers."""
    rank, tid, start = (trace.ints(column) for column in ("rank", "tid", "start_ns"))
    begun, first = _begun(trace), np.zeros(len(rows), np.bool_)
    operators = trace.host & trace.rows("kind", OPERATOR)
    operators &= ~nesting.lies_in(trace.ints("parent"), trace.rows("kind", DATALOADER, OPERATOR))
    for number, thread in np.unique(np.stack([rank[begun], tid[begun]]), axis=1).T:
        here = (rank == number) & (tid == thread)
        calls = np.flatnonzero(here[rows])
        calls = calls[np.argsort(start[rows[calls]], kind="stable")]
        drawn, computing = np.sort(start[begun[here[begun]]]), np.sort(start[operators & here])
        following = np.searchsorted(start[rows[calls]], drawn)
        drawn, following = drawn[following < len(calls)], following[following < len(calls)]
        until = np.searchsorted(computing, start[rows[calls[following]]])
        first[calls[following[until - np.searchsorted(computing, drawn, side="right") <= _READS_SEED]]] = True
    return first


def batch_waits(trace: Trace, segments: Segments, leads: BoolArray) -> tuple[IntArray, IntArray, Edges]:
    """Return the waits for batches. ``leads`` is the mask of the threads that run the steps. The three results are:

    - the segments that wait for a batch,
    - the time in ns that each of these segments takes if its batch is ready,
    - the edges that delay the following segments until the batches arrive."""
    rows = loads(trace)
    begins = begins_epoch(trace, rows)
    may_wait = segments.first[rows] >= 0
    may_wait[may_wait] = leads[segments.thread[segments.first[rows[may_wait]]]]
    may_wait &= in_workers(trace, rows) | in_thread(trace, rows)
    rows, begins = rows[may_wait], begins[may_wait]
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
    """Return the nodes that wait for a batch, and the waits in ns. The time to get a ready batch is not included."""
    links = graph.edges
    until = links.dst[links.cause == BATCH]
    node = until - 1
    return node, graph.start_ns[until] - graph.start_ns[node] - graph.dur_ns[node]


def _idle_calls(trace: Trace, segments: Segments, rows: IntArray) -> IntArray:
    """Return, for each segment, the position in ``rows`` of the loader call that may wait in it, -1 if none."""
    call = np.full(len(trace) + 1, -1, np.int64)  # the last item is for segments without an event (row -1)
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
    """Return, for each wait, the segment of the waiting thread at whose start a worker probably begins to make the
    awaited batch. Wait ``i`` takes place in segment ``node[i]``, inside loader call ``rows[call[i]]``."""
    thread = segments.thread[segments.first[rows]]
    since = np.searchsorted(segments.thread, thread)  # a worker begins in the thread's first segment or later
    waits = np.zeros(len(rows), np.int64)
    np.add.at(waits, call, waited_ns)
    for number in np.unique(thread):
        here = np.flatnonzero(thread == number)
        here = here[np.argsort(segments.first[rows[here]], kind="stable")]
        starts = begins[here] & ~np.append(False, begins[here][:-1])
        latest = np.maximum.accumulate(np.where(starts, segments.first[rows[here]], -1))  # the epoch starts the workers
        ahead = _AHEAD * max(period(waits[here], starts), _WORKERS)  # the batch was requested this many calls earlier
        latest[ahead:] = np.maximum(latest[ahead:], segments.after[rows[here[:-ahead]]])
        since[here] = np.maximum(since[here], latest)
    before = np.append(0, node[:-1] + 1)[: len(node)]  # a worker begins after the end of the previous wait
    same = np.append(False, segments.thread[node[1:]] == segments.thread[node[:-1]])[: len(node)]
    return np.maximum(since[call], np.where(same, before, 0))
