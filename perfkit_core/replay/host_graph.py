"""Nodes of the host: the segments of its threads, cut where they wait for other threads, and what follows what."""

from __future__ import annotations

import numpy as np

from perfkit_core.replay.graph import CHAIN, HANDOFF, Edges, Graph, all_edges, edges
from perfkit_core.replay.handoffs import Handoffs
from perfkit_core.replay.host_segments import Segments
from perfkit_core.trace import BoolArray, IntArray


def host_graph(segments: Segments, busy_ns: IntArray, bursts: Handoffs) -> Graph:
    """The segments as nodes of the same numbers, and behind them one node for each burst: the rest of its waiter.

    ``busy_ns`` is what each segment takes without waiting for a device, shape (segments,).
    """
    count, extra = len(segments), np.arange(len(segments), len(segments) + len(bursts))
    begin, end = segments.start_ns[bursts.first], segments.end_ns[bursts.last]
    same = bursts.waiter[1:] == bursts.waiter[:-1]
    is_last, is_first = np.append(~same, True)[: len(bursts)], np.append(True, ~same)[: len(bursts)]
    final = _final(is_last)
    resumed = np.where(bursts.returns, end, begin)
    latest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(latest, bursts.waiter, resumed)
    until = np.where(is_last, segments.end_ns[bursts.waiter], np.append(begin[1:], 0)[: len(bursts)])
    since = np.where(is_last, np.maximum(begin, latest[bursts.waiter]), begin)
    dur = busy_ns.copy()
    dur[bursts.waiter[is_first]] = (begin - segments.start_ns[bursts.waiter])[is_first]
    dur[bursts.idle[bursts.idle >= 0]] = 0
    woken_by = np.where(is_first, bursts.waiter, extra - 1)
    nodes = np.concatenate([dur, until - since])
    return Graph(
        nodes,
        np.concatenate([segments.row, segments.row[bursts.waiter]]),
        np.concatenate([segments.thread, segments.thread[bursts.waiter]]),
        np.concatenate([segments.start_ns, since]),
        segments.threads,
        all_edges(
            [
                _chain(segments, bursts.waiter[is_last], extra[is_last]),
                edges(CHAIN, woken_by, extra),
                edges(HANDOFF, woken_by, bursts.first),
                edges(HANDOFF, bursts.last[bursts.returns], extra[final][bursts.returns]),
            ]
        ),
    )


def _final(is_last: BoolArray) -> IntArray:
    """Of each burst the position of the last one with its waiter."""
    ends = np.flatnonzero(is_last)
    return ends[np.searchsorted(ends, np.arange(len(is_last)))] if len(is_last) else ends


def _chain(segments: Segments, waiters: IntArray, rest: IntArray) -> Edges:
    """Each segment after the one before it; after a waiter, what is left of it."""
    source = np.arange(len(segments))
    source[waiters] = rest
    follows = np.flatnonzero(segments.thread[1:] == segments.thread[:-1])
    return edges(CHAIN, source[follows], follows + 1)
