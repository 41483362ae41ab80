"""When does the training wait for a batch that others make ahead of it?

Worker processes of a data loader, and a thread of it that reads ahead, work at a pace of their own: their batch arrives
no earlier because the training asks for it earlier. So where the training waited, it goes on no sooner than the batch
was recorded to arrive; where it did not, the batch was there. What the training makes itself is work like any other,
also within a call of the loader: where operators rebuild the batch in it, the wait is over with the last of them.

Do long waits recur at a distance of their own?

Workers that are too few make their batches at the same time: so many calls as there are workers have one long wait.
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
from perfkit_core.replay.host_segments import Segments

_LONG: Final = 0.5
_LONGEST: Final = 0.9
"""Waits are long from this share of such a quantile of them on."""
_EQUAL: Final = 3
"""So many equal distances are no chance; two, where there are no others."""
_MANY: Final = 2
"""Distances are many that are so many times as many as they are long: some are in each part of the recording."""
_MOST: Final = 64
"""Waits that are further apart are not those of workers that take turns."""


def period(waited_ns: IntArray, begins: BoolArray) -> int:
    """How far long waits are apart, given how long each call (or step) waits, 0 for not at all, and in which an epoch
    begins, both of shape (n,). 1 where they do not recur: a distance recurs that most of them have, or the mean of
    very many."""
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
"""What beginning to iterate over a loader leaves in a recording: the seed that is drawn for its workers, in no
other operator."""
_ENTERED_NS: Final = 50_000
"""Operators that begin so soon in a call are those of the profiler that marks it: a batch is rebuilt later."""
_HANDED_OVER_NS: Final = 2_000_000
"""Getting a batch that is there takes no longer, but for what operators rebuild: it is unpickled and pinned."""
_HANDED_OVER: Final = 0.1
"""Quantile of the calls of a loader that wait least: they show what getting a batch takes that is there."""
_WORKERS: Final = 2
_AHEAD: Final = 2
"""Each worker has so many batches to make: when one is handed over, the next one is asked for. How many workers there
are is only told by the rhythm of the waits; where it is not, so many are assumed."""
_LEAST_NS: Final = 500_000
_LEAST_SHARE: Final = 0.05
"""A call that takes so much longer than those waits: more than getting a batch varies, in ns and of the median step."""


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """Segments in which the training waits for a batch, ``node``, and what each takes when the batch is there,
    ``busy_ns``, of shape (waits,); ``edges`` let what follows them begin when the batch arrives."""

    node: IntArray
    busy_ns: IntArray
    edges: Edges


def loads(trace: Trace) -> IntArray:
    """Rows of the calls of data loaders on the host, without those within another."""
    loading = trace.rows("kind", DATALOADER)
    return np.flatnonzero(trace.host & loading & ~nesting.lies_in(trace.ints("parent"), loading))


def in_workers(trace: Trace, rows: IntArray) -> BoolArray:
    """Which of the calls get batches that worker processes make."""
    return _named(trace, rows, _IN_WORKERS)


def in_thread(trace: Trace, rows: IntArray) -> BoolArray:
    """Which of the calls get batches that a thread makes ahead of the training, in its process."""
    return _named(trace, rows, _IN_THREAD)


def begins_epoch(trace: Trace, rows: IntArray) -> BoolArray:
    """Which of the calls (all of a recording) are in a step in which an epoch begins: the loader is called once more
    than in other steps, which tells that it has come to its end, or it is begun anew."""
    rank, step = trace.ints("rank"), trace.ints("step")
    known = np.flatnonzero(step[rows] >= 0)
    if not len(known):
        return np.zeros(len(rows), np.bool_)
    begun = trace.host & _matches(trace, _BEGINS)
    begun &= ~nesting.lies_in(trace.ints("parent"), trace.rows("kind", DATALOADER, OPERATOR))
    events = np.append(rows[known], np.flatnonzero(begun & (step >= 0)))
    key, count = groupby.distinct([rank[events], step[events]], len(events))[0], len(known)
    steps = np.unique(key[:count])
    more = np.zeros(int(key.max()) + 1, np.bool_)
    for part in (key[:count], key[count:]):
        calls = np.bincount(part, minlength=len(more))
        more |= calls > np.median(calls[steps])
    found = np.zeros(len(rows), np.bool_)
    found[known] = more[key[:count]]
    return found


def batch_waits(trace: Trace, segments: Segments, leads: BoolArray) -> BatchWaits:
    """The waits of the threads that run the steps (``leads``, shape (threads,))."""
    rows = loads(trace)
    begins = begins_epoch(trace, rows)
    kept = segments.first[rows] >= 0
    kept[kept] = leads[segments.thread[segments.first[rows[kept]]]]
    kept &= in_workers(trace, rows) | in_thread(trace, rows)
    rows, begins = rows[kept], begins[kept]
    of_segment = _alone(trace, segments, rows)
    length = segments.end_ns - segments.start_ns
    longest = np.zeros(len(rows), np.int64)
    np.maximum.at(longest, of_segment[of_segment >= 0], length[of_segment >= 0])
    own_ns = np.zeros(len(rows), np.int64)
    waits = np.zeros(len(rows), np.bool_)
    for rank in np.unique(trace.ints("rank")[rows]):
        here = np.flatnonzero((trace.ints("rank")[rows] == rank) & ~begins)
        own_ns[here], waits[here] = _waits(trace, longest[here], int(rank))
    least = np.where(waits, np.maximum(own_ns, _LEAST_NS), np.iinfo(np.int64).max)
    node = np.flatnonzero((of_segment >= 0) & (length > np.append(least, 0)[of_segment]))
    call = of_segment[node]
    since, until = _since(segments, rows, begins, node, call, length[node]), node + 1
    lag_ns = segments.start_ns[until] - segments.start_ns[since]
    return BatchWaits(node, own_ns[call], edges(BATCH, since, until, lag_ns, rows[call], from_start=True))


def waited(graph: Graph) -> tuple[IntArray, IntArray]:
    """The nodes of a recording that wait for a batch, and how long beyond what they take when it is there, in ns."""
    links = graph.edges
    until = links.dst[links.cause == BATCH]
    node = until - 1
    return node, graph.start_ns[until] - graph.start_ns[node] - graph.dur_ns[node]


def _waits(trace: Trace, alone_ns: IntArray, rank: int) -> tuple[int, BoolArray]:
    """What the calls of a rank take for a batch that is there, in ns, and which of them wait for theirs, given the
    longest time in which each does nothing else."""
    if not len(alone_ns):
        return 0, np.zeros(0, np.bool_)
    dur = trace.ints("dur_ns")
    own = min(int(np.quantile(alone_ns, _HANDED_OVER)), _HANDED_OVER_NS)
    steps = dur[trace.host & trace.rows("kind", STEP) & (trace.ints("rank") == rank)]
    least = max(_LEAST_NS, _LEAST_SHARE * float(np.median(steps)) if len(steps) else 0.0)
    return own, alone_ns - own > least


def _alone(trace: Trace, segments: Segments, rows: IntArray) -> IntArray:
    """For each segment the position of the call that may wait then: nothing else is done in it, and operators that
    rebuild the batch are still to come, where there are any in the call. -1: no call."""
    call = np.full(len(trace) + 1, -1, np.int64)  # the last one stands for no event
    call[rows] = np.arange(len(rows))
    call[:-1] = nesting.first_on_path(trace.ints("parent"), call[:-1])
    start = trace.ints("start_ns")
    rebuild = np.flatnonzero(trace.rows("kind", OPERATOR) & (call[:-1] >= 0))
    rebuild = rebuild[start[rebuild] - start[rows[call[rebuild]]] > _ENTERED_NS]
    until = trace.end_ns[rows]
    until[np.unique(call[rebuild])] = 0
    np.maximum.at(until, call[rebuild], start[rebuild])
    call[:-1][trace.rows("kind", OPERATOR, RUNTIME, SYNC)] = -1
    found: IntArray = call[segments.row]
    return np.where(segments.start_ns < np.append(until, 0)[found], found, -1)


def _since(
    segments: Segments, rows: IntArray, begins: BoolArray, node: IntArray, call: IntArray, waited_ns: IntArray
) -> IntArray:
    """For each wait (``node``, of the ``call``) the segment from which the making of its batch is counted, the latest
    of these: the first one of the thread; the first call of the epoch, which sets the makers to work; the end of the
    call with which the batch was asked for; the end of the wait before, for since then the makers are behind."""
    thread = segments.thread[segments.first[rows]]
    found = np.searchsorted(segments.thread, thread)
    waits = np.zeros(len(rows), np.int64)
    np.add.at(waits, call, waited_ns)
    for one in np.unique(thread):
        own = np.flatnonzero(thread == one)
        own = own[np.argsort(segments.first[rows[own]], kind="stable")]
        starts = begins[own] & ~np.append(False, begins[own][:-1])
        latest = np.maximum.accumulate(np.where(starts, segments.first[rows[own]], -1))
        asked = _AHEAD * max(period(waits[own], starts), _WORKERS)
        latest[asked:] = np.maximum(latest[asked:], segments.after[rows[own[:-asked]]])
        found[own] = np.maximum(found[own], latest)
    before = np.append(0, node[:-1] + 1)[: len(node)]
    same = np.append(False, segments.thread[node[1:]] == segments.thread[node[:-1]])[: len(node)]
    return np.maximum(found[call], np.where(same, before, 0))


def _named(trace: Trace, rows: IntArray, words: re.Pattern[str]) -> BoolArray:
    found: BoolArray = _matches(trace, words)[rows]
    return found


def _matches(trace: Trace, words: re.Pattern[str]) -> BoolArray:
    names = trace.codes("name")
    found: BoolArray = names.lookup(np.array([bool(words.search(name)) for name in names.values], np.bool_), False)
    return found
