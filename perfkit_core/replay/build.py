"""Build the graph of a trace. The nodes are segments of host threads and device work. The edges are waits between them.

Recordings do not show which thread waits for which. ``handoffs`` infers it: if thread B begins to work during a segment
of thread A, then A woke B.

- If B finishes shortly before the segment ends, A waited for B. For example, the thread that called ``backward`` waits
  for the threads of autograd.
- If B continues to work after the segment, B runs in parallel, and A did not wait.

``joined`` infers waits for collectives of other host threads. A thread waits for such a collective if it runs no
operator while the collective ends, and continues shortly after this end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.base.system import machine
from perfkit_core.replay.batches import batch_waits
from perfkit_core.replay.device_work import device_work, queue_limits, work_edges
from perfkit_core.replay.graph import CHAIN, HANDOFF, Graph, Replay, edges, ordered
from perfkit_core.replay.host_segments import Segments, host_segments
from perfkit_core.replay.joint_ranks import meet
from perfkit_core.replay.waits import stream_waits, sync_records, waits
from perfkit_core.trace.model.schema import OPERATOR, RUNTIME, STEP, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.instances import communication

_EVENT_BYTES: Final = 500
"""Memory of the replay for each event, including that of its creation."""
RETURN_NS: Final = 200_000
RETURN_SHARE: Final = 0.05
"""A thread that waited for another thread continues soon after the other has finished: within ``RETURN_NS``, or within
the share ``RETURN_SHARE`` of the wait if that is longer."""


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Bursts of work that a thread B does during one segment of another thread A. Arrays of shape (bursts,).

    - ``waiter``: the segment of A.
    - ``first``, ``last``: the first and the last segment of B that belong to the burst.
    - ``idle``: the segment of B before ``first``, in which B was idle, -1 if none.
    - ``returns``: whether A waits until the burst ends."""

    waiter: IntArray
    first: IntArray
    last: IntArray
    idle: IntArray
    returns: BoolArray

    def __len__(self) -> int:
        return len(self.waiter)


def handoffs(segments: Segments, leaders: BoolArray, rank: IntArray, batches: IntArray) -> Handoffs:
    """Return the bursts that the ``leaders`` started. A leader starts a burst if an idle thread begins to work during a
    segment of the leader. The bursts are sorted by this segment, and then by time.

    - ``leaders``: mask of the threads that run the steps.
    - ``rank``: rank of each thread. A leader starts bursts only in its own rank.
    - ``batches``: segments in which a leader waits for a batch. Such a wait starts no bursts."""
    parts = [
        _bursts(segments, leader, other)
        for leader in np.flatnonzero(leaders).tolist()
        for other in range(segments.threads)
        if not leaders[other] and rank[leader] == rank[other]
    ]
    fields = np.concatenate([np.empty((5, 0), np.int64), *parts], axis=1)
    fields = fields[:, np.lexsort((segments.start_ns[fields[1]], fields[0]))]
    waiter, first, last, idle, returns = fields[:, ~np.isin(fields[0], batches)]
    return Handoffs(waiter, first, last, idle, returns.astype(np.bool_))


def _bursts(segments: Segments, leader: int, other: int) -> IntArray:
    """Return the bursts of the thread ``other`` during segments of the thread ``leader``, shape (5, bursts). The rows
    are the fields of :class:`Handoffs`."""
    of_leader, of_other = (np.searchsorted(segments.thread, [thread, thread + 1]) for thread in (leader, other))
    low, high = int(of_other[0]), int(of_other[1]) - 1  # leave out the thread's last segment, which is empty
    at = np.arange(low, high)
    idle = (segments.row[at] < 0) & (segments.end_ns[at] > segments.start_ns[at])
    begins = np.unique(np.append(at[idle] + 1, low))
    begins = begins[begins < high]
    if not len(begins):
        return np.empty((5, 0), np.int64)
    leads = slice(int(of_leader[0]), int(of_leader[1]) - 1)
    waiter = leads.start + np.searchsorted(segments.start_ns[leads], segments.start_ns[begins], side="right") - 1
    within = (waiter >= leads.start) & (segments.end_ns[np.maximum(waiter, 0)] > segments.start_ns[begins])
    idle_since = np.where(begins > low, segments.start_ns[np.maximum(begins - 1, low)], np.iinfo(np.int64).min)
    woken = within & (idle_since <= segments.start_ns[np.maximum(waiter, 0)])
    begins, waiter = begins[woken], waiter[woken]
    until = segments.end_ns[waiter]
    # last segment of each burst: the last one with an event that is over when the waiter's segment ends
    latest = np.maximum.accumulate(np.where(segments.row[low:high] >= 0, at, -1))
    last = np.searchsorted(segments.end_ns[low:high], until, side="right") - 1
    last = np.maximum(latest[np.maximum(last, 0)], begins)
    runs_on = segments.end_ns[np.minimum(last + 1, high)] > until  # the work lasts longer than the waiter's segment
    runs_on &= segments.row[np.minimum(last + 1, high)] >= 0
    left = until - segments.end_ns[last]
    short = np.maximum(RETURN_NS, ((until - segments.start_ns[waiter]) * RETURN_SHARE).astype(np.int64))
    returns = ~runs_on & (left >= 0) & (left <= short)
    return np.stack([waiter, begins, last, np.where(begins > low, begins - 1, -1), returns])


def host_graph(segments: Segments, busy_ns: IntArray, bursts: Handoffs) -> Graph:
    """Return the graph of the host threads. ``busy_ns`` contains the duration of each segment, less the time for which
    the segment waits for a device or a batch.

    Each segment becomes a node. ``bursts.waiter`` contains, for each burst, the segment during which the burst runs.
    The start of the burst cuts this segment in two. Each part after a cut becomes an additional node. Additional nodes
    follow the nodes of the segments, in the order of ``bursts``."""
    count, extra = len(segments), np.arange(len(segments), len(segments) + len(bursts))
    begin, end = segments.start_ns[bursts.first], segments.end_ns[bursts.last]
    same = bursts.waiter[1:] == bursts.waiter[:-1]
    is_last, is_first = np.append(~same, True)[: len(bursts)], np.append(True, ~same)[: len(bursts)]
    ends = np.flatnonzero(is_last)
    final = ends[np.searchsorted(ends, np.arange(len(bursts)))]  # for each burst, the last burst in the same segment
    resumed = np.where(bursts.returns, end, begin)
    latest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(latest, bursts.waiter, resumed)
    until = np.where(is_last, segments.end_ns[bursts.waiter], np.append(begin[1:], 0)[: len(bursts)])
    since = np.where(is_last, np.maximum(begin, latest[bursts.waiter]), begin)
    dur = busy_ns.copy()
    dur[bursts.waiter[is_first]] = (begin - segments.start_ns[bursts.waiter])[is_first]
    dur[bursts.idle[bursts.idle >= 0]] = 0
    woken_by = np.where(is_first, bursts.waiter, extra - 1)
    source = np.arange(count)  # node at which each segment ends: the last part of a cut segment
    source[bursts.waiter[is_last]] = extra[is_last]
    follows = np.flatnonzero(segments.thread[1:] == segments.thread[:-1])
    chain = edges(CHAIN, source[follows], follows + 1)
    graph = Graph(dur, segments.row, segments.thread, segments.start_ns, segments.threads, chain)
    links = [
        edges(CHAIN, woken_by, extra),
        edges(HANDOFF, woken_by, bursts.first),
        edges(HANDOFF, bursts.last[bursts.returns], extra[final][bursts.returns]),
    ]
    return graph.with_nodes(until - since, segments.row[bursts.waiter], segments.thread[bursts.waiter], since, links)


def joined(trace: Trace, graph: Graph, leads: BoolArray, after: IntArray) -> Graph:
    """Return the graph in which the threads that run the steps (mask ``leads``) wait for collectives of other threads.
    A node that waits is cut in two at the end of the collective. The first part gets the duration 0. An edge delays the
    second part until the collective ends. The node ``after[row]`` starts when host event ``row`` ends."""
    calls = np.flatnonzero(communication(trace).host & (after >= 0))
    calls = calls[~leads[graph.lane[after[calls]]]]
    rank, at_work = trace.ints("rank"), trace.rows("kind", OPERATOR, RUNTIME, SYNC)
    waiter = np.full(len(calls), -1, np.int64)  # for each collective, the node that waits for it, -1 if none
    for lane in np.flatnonzero(leads).tolist():
        nodes = np.flatnonzero((graph.lane == lane) & (graph.dur_ns > 0))
        nodes = nodes[np.argsort(graph.start_ns[nodes], kind="stable")]
        owner = graph.row[nodes[graph.row[nodes] >= 0]]
        mine = np.flatnonzero(rank[calls] == rank[owner[0]]) if len(owner) else np.empty(0, np.int64)
        if not len(mine):
            continue
        over = trace.end_ns[calls[mine]]
        at = np.searchsorted(graph.start_ns[nodes], over, side="left") - 1
        node = nodes[np.maximum(at, 0)]
        left = graph.start_ns[node] + graph.dur_ns[node] - over
        soon = np.maximum(RETURN_NS, (graph.dur_ns[node] * RETURN_SHARE).astype(np.int64))
        waits = (at >= 0) & (left >= 0) & (left <= soon) & ~((graph.row[node] >= 0) & at_work[graph.row[node]])
        waiter[mine[waits]] = node[waits]
    calls, waiter = calls[waiter >= 0], waiter[waiter >= 0]
    node, position = np.unique(waiter, return_inverse=True)
    over = np.full(len(node), np.iinfo(np.int64).min)
    np.maximum.at(over, position, trace.end_ns[calls])
    rest = np.arange(len(graph), len(graph) + len(node))
    left = graph.start_ns[node] + graph.dur_ns[node] - over
    links = [
        edges(CHAIN, node, rest),
        edges(HANDOFF, after[calls], rest[position], owner=calls, from_start=True),
    ]
    return graph.continued(node, rest).with_nodes(left, graph.row[node], graph.lane[node], over, links)


def build(trace: Trace) -> Replay:
    """Return the replay of a trace. In its graph, ranks wait for each other in synchronous collectives.
    Raises UsageError if it would exceed the limit of memory."""
    machine.require(_EVENT_BYTES * len(trace), "the replay")
    segments = host_segments(trace)
    rank = _ranks(trace, segments.row, segments.thread, segments.threads)
    leads = leaders(trace, segments, rank)
    waiting, ready_ns, batch_edges = batch_waits(trace, segments, leads)
    bursts = handoffs(segments, leads, rank, waiting)
    work, records = device_work(trace), sync_records(trace)
    hosts = len(segments) + len(bursts)
    nodes = np.arange(hosts, hosts + len(work))
    calls = waits(trace, work, segments, nodes, records)
    limits = queue_limits(trace, work, segments, nodes)
    busy = segments.end_ns - segments.start_ns
    row, busy_ns = np.append(calls.row, limits.row), np.append(calls.busy_ns, limits.busy_ns)
    last = segments.after[row] - 1  # a call waits in its last segment
    busy[last] = np.clip(busy_ns - (segments.start_ns[last] - trace.ints("start_ns")[row]), 0, busy[last])
    busy[waiting] = np.minimum(busy[waiting], ready_ns)
    launched_by = trace.ints("launched_by")[work.row]
    launch_node = np.where(launched_by >= 0, segments.first[launched_by], -1)
    into = work_edges(trace, work, launch_node, nodes, stream_waits(trace, work, nodes, records))
    start, dur = trace.ints("start_ns")[work.row], trace.ints("dur_ns")[work.row]
    graph = host_graph(segments, busy, bursts).with_nodes(
        dur, work.row, work.lane + segments.threads, start, [into, calls.edges, limits.edges, batch_edges]
    )
    graph = joined(trace, graph, leads, segments.after)
    of_row = np.full(len(trace), -1, np.int64)
    of_row[work.row] = nodes
    rank = _ranks(trace, graph.row, graph.lane, int(graph.lane.max(initial=-1)) + 1)
    ahead_ns = np.zeros(len(rank), np.int64)
    replay = Replay(trace, graph, segments.first, segments.after, of_row, 0, 0, rank, ahead_ns)
    replay = meet(replay, work, leads)
    return replace(replay, graph=ordered(replay.graph))


def leaders(trace: Trace, segments: Segments, rank: IntArray) -> BoolArray:
    """Return the mask of the threads that run the steps, shape (threads,). In a rank without steps, the thread with the
    most events is selected. ``rank`` is the rank of each thread."""
    leads = np.zeros(segments.threads, np.bool_)
    rows = np.flatnonzero(trace.rows("kind", STEP) & (segments.first >= 0))
    leads[segments.thread[segments.first[rows]]] = True
    events = np.bincount(segments.thread[segments.row >= 0], minlength=segments.threads)
    for number in np.setdiff1d(rank, rank[leads]):
        leads[np.argmax(np.where(rank == number, events, -1))] = True
    return leads


def _ranks(trace: Trace, row: IntArray, lane: IntArray, lanes: int) -> IntArray:
    rank = np.full(lanes, -1, np.int64)
    rank[lane[row >= 0]] = trace.ints("rank")[row[row >= 0]]
    return rank
