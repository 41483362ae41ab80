"""From a trace to the graph that replays it.

Nodes of the host: the segments of its threads, cut where they wait for other threads, and what follows what.

Which host threads wait for each other? A thread that begins to work inside one stretch of another's time was woken
by it; when it is done before that stretch ends, and shortly before, the other waited for it.

So autograd's threads work while the thread that called ``backward`` waits, whatever either of them recorded meanwhile.
Threads that work on beyond the stretch run beside it and are waited for by nobody.

Which stretches of a step wait for a collective that another thread of the host carries out?

Such a collective is asked for early and waited for later, so the stretch that waits is not the one in which it began
(``handoffs``). It is the one in which it ends, when the step goes on shortly afterwards and no operator is at work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.schema import OPERATOR, RUNTIME, STEP, SYNC
from perfkit_core.model.trace import Trace
from perfkit_core.replay import device_work as devices
from perfkit_core.replay.batches import batch_waits
from perfkit_core.replay.device_work import DeviceWork, queue_limits
from perfkit_core.replay.graph import CHAIN, HANDOFF, Edges, Graph, all_edges, edges
from perfkit_core.replay.host_segments import Segments, host_segments
from perfkit_core.replay.ranks import meet
from perfkit_core.replay.stream_waits import stream_waits, sync_records
from perfkit_core.replay.waits import waits
from perfkit_core.views.communication.instances import communication

RETURN_NS: Final = 200_000
"""A thread that waited goes on at most so long after the other was done, or after ``RETURN_SHARE`` of its wait."""
RETURN_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Handoffs:
    """Bursts of work of one thread inside a segment of another, arrays of shape (bursts,).

    ``waiter`` is the segment of the other thread, ``first`` and ``last`` the segments of the burst (all of Segments),
    ``idle`` the segment before it, in which its thread had nothing to do (-1: none). ``returns``: the waiter goes on
    when the burst is over.
    """

    waiter: IntArray
    first: IntArray
    last: IntArray
    idle: IntArray
    returns: BoolArray

    def __len__(self) -> int:
        return len(self.waiter)


def handoffs(segments: Segments, leaders: BoolArray, rank: IntArray, batches: IntArray) -> Handoffs:
    """Bursts of other threads inside segments of the ``leaders`` (threads that run the steps) of the same ``rank``, in
    the order of the waiters and of time. ``batches``: segments that wait for a batch, which nobody begins to make
    because of that."""
    found = [
        _inside(segments, leader, other)
        for leader in np.flatnonzero(leaders).tolist()
        for other in range(segments.threads)
        if not leaders[other] and rank[leader] == rank[other]
    ]
    nothing = np.empty(0, np.int64)
    whole = [np.concatenate([nothing, *(part[i] for part in found)]) for i in range(5)]
    order = np.lexsort((segments.start_ns[whole[1]], whole[0]))
    order = order[~np.isin(whole[0][order], batches)]
    waiter, first, last, idle, returns = (part[order] for part in whole)
    return Handoffs(waiter, first, last, idle, returns.astype(np.bool_))


def _inside(segments: Segments, leader: int, other: int) -> tuple[IntArray, ...]:
    """Fields of Handoffs for the bursts of one thread in the segments of another."""
    theirs, own = (np.searchsorted(segments.thread, [thread, thread + 1]) for thread in (leader, other))
    low, high = int(own[0]), int(own[1]) - 1  # without the empty one at the end
    at = np.arange(low, high)
    idle = (segments.row[at] < 0) & (segments.end_ns[at] > segments.start_ns[at])
    begins = np.unique(np.append(at[idle] + 1, low))
    begins = begins[begins < high]
    if not len(begins):
        return tuple(np.empty(0, np.int64) for _ in range(5))
    leads = slice(int(theirs[0]), int(theirs[1]) - 1)
    waiter = leads.start + np.searchsorted(segments.start_ns[leads], segments.start_ns[begins], side="right") - 1
    within = (waiter >= leads.start) & (segments.end_ns[np.maximum(waiter, 0)] > segments.start_ns[begins])
    idle_since = np.where(begins > low, segments.start_ns[np.maximum(begins - 1, low)], np.iinfo(np.int64).min)
    woken = within & (idle_since <= segments.start_ns[np.maximum(waiter, 0)])
    begins, waiter = begins[woken], waiter[woken]
    last = _last_in(segments, low, high, waiter, begins)
    until = segments.end_ns[waiter]
    runs_on = segments.end_ns[np.minimum(last + 1, high)] > until  # the segment behind the last one reaches beyond
    runs_on &= segments.row[np.minimum(last + 1, high)] >= 0
    left = until - segments.end_ns[last]
    short = np.maximum(RETURN_NS, ((until - segments.start_ns[waiter]) * RETURN_SHARE).astype(np.int64))
    idle_segment = np.where(begins > low, begins - 1, -1)
    return waiter, begins, last, idle_segment, (~runs_on & (left >= 0) & (left <= short)).astype(np.int64)


def _last_in(segments: Segments, low: int, high: int, waiter: IntArray, begins: IntArray) -> IntArray:
    """The last segment with work of the thread low..high that ends within each waiter."""
    last = low + np.searchsorted(segments.end_ns[low:high], segments.end_ns[waiter], side="right") - 1
    work = np.where(segments.row[low:high] >= 0, np.arange(low, high), -1)
    latest = np.maximum.accumulate(work)
    return np.maximum(latest[np.maximum(last - low, 0)], begins)


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


def joined(trace: Trace, graph: Graph, leads: BoolArray, after: IntArray) -> Graph:
    """With stretches of the threads that run the steps (``leads``, shape (threads,)) cut where a collective ends that
    they wait for: the first part is waiting and takes no time of its own. ``after``: see ``build.Replay``."""
    calls = np.flatnonzero(communication(trace).host & (after >= 0))
    calls = calls[~leads[graph.lane[after[calls]]]]
    waits = _waiting(trace, graph, leads, after, calls)
    calls, waits = calls[waits >= 0], waits[waits >= 0]
    return _cut(trace, graph, after, calls, waits) if len(calls) else graph


def _waiting(trace: Trace, graph: Graph, leads: BoolArray, after: IntArray, calls: IntArray) -> IntArray:
    """For each collective the node that waits for it; -1: none."""
    found = np.full(len(calls), -1, np.int64)
    rank, over = trace.ints("rank")[calls], trace.end_ns[calls]
    for lane in np.flatnonzero(leads).tolist():
        nodes = np.flatnonzero((graph.lane == lane) & (graph.dur_ns > 0))
        nodes = nodes[np.argsort(graph.start_ns[nodes], kind="stable")]
        owner = graph.row[nodes[graph.row[nodes] >= 0]]
        mine = np.flatnonzero(rank == trace.ints("rank")[owner[0]]) if len(owner) else np.empty(0, np.int64)
        if not len(mine):
            continue
        at = np.searchsorted(graph.start_ns[nodes], over[mine], side="left") - 1
        node = nodes[np.maximum(at, 0)]
        left = graph.start_ns[node] + graph.dur_ns[node] - over[mine]
        soon = np.maximum(RETURN_NS, (graph.dur_ns[node] * RETURN_SHARE).astype(np.int64))
        waits = (at >= 0) & (left >= 0) & (left <= soon) & ~_at_work(trace, graph, node)
        found[mine[waits]] = node[waits]
    return found


def _at_work(trace: Trace, graph: Graph, node: IntArray) -> BoolArray:
    """Whether an operator or a call of a device's runtime has the time of a node."""
    owned: BoolArray = (graph.row[node] >= 0) & trace.rows("kind", OPERATOR, RUNTIME, SYNC)[graph.row[node]]
    return owned


def _cut(trace: Trace, graph: Graph, after: IntArray, calls: IntArray, waits: IntArray) -> Graph:
    """A node behind each one that waits: what is left of it when the last of its collectives is over."""
    node, which = np.unique(waits, return_inverse=True)
    over = np.full(len(node), np.iinfo(np.int64).min)
    np.maximum.at(over, which, trace.end_ns[calls])
    rest = np.arange(len(graph), len(graph) + len(node))
    ends_with = np.arange(len(graph))
    ends_with[node] = rest
    links = graph.edges
    links = replace(links, src=np.where(links.from_start, links.src, ends_with[links.src]))
    dur = graph.dur_ns.copy()
    left = graph.start_ns[node] + dur[node] - over
    dur[node] = 0
    return Graph(
        np.append(dur, left),
        np.append(graph.row, graph.row[node]),
        np.append(graph.lane, graph.lane[node]),
        np.append(graph.start_ns, over),
        graph.threads,
        all_edges(
            [
                links,
                edges(CHAIN, node, rest),
                edges(HANDOFF, after[calls], rest[which], owner=calls, from_start=True),
            ]
        ),
    )


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace as a graph. ``first`` and ``after`` are the nodes that begin with each host event and with its end,
    ``work`` the node of each piece of device work, shape (rows,), -1 where there is none. The others are of
    :class:`perfkit_core.replay.ranks.Meetings`: several ranks have clocks of their own in the trace, and one in the
    graph."""

    trace: Trace
    graph: Graph
    first: IntArray
    after: IntArray
    work: IntArray
    tied: int
    apart: int
    rank: IntArray
    ahead_ns: IntArray

    def recorded_ns(self, nodes: IntArray) -> IntArray:
        """When nodes were recorded to start, on the clock of the trace, shape (len(nodes),)."""
        return self.graph.start_ns[nodes] + self.ahead_ns[self.graph.lane[nodes]]

    def hosts(self, rank: int) -> IntArray:
        """The nodes of the host threads of a rank."""
        return np.flatnonzero(self.graph.on_host & (self.rank[self.graph.lane] == rank))


def build(trace: Trace) -> Replay:
    """The graph of a trace: of one rank, or of several that meet in their collectives."""
    segments = host_segments(trace)
    rank = _ranks(trace, segments)
    leads = leaders(trace, segments, rank)
    batches = batch_waits(trace, segments, leads)
    bursts = handoffs(segments, leads, rank, batches.node)
    work = devices.device_work(trace)
    records = sync_records(trace)
    hosts = len(segments) + len(bursts)
    nodes = np.arange(hosts, hosts + len(work))
    found = waits(trace, work, segments, nodes, records)
    limits = queue_limits(trace, work, segments, nodes)
    busy = _busy(trace, segments, np.append(found.row, limits.row), np.append(found.busy_ns, limits.busy_ns))
    busy[batches.node] = np.minimum(busy[batches.node], batches.busy_ns)
    host = host_graph(segments, busy, bursts)
    others = stream_waits(trace, work, nodes, records)
    into = devices.work_edges(trace, work, _launches(trace, work, segments), nodes, others)
    of_row = np.full(len(trace), -1, np.int64)
    of_row[work.row] = nodes
    graph = Graph(
        np.append(host.dur_ns, trace.ints("dur_ns")[work.row]),
        np.append(host.row, work.row),
        np.append(host.lane, work.lane + segments.threads),
        np.append(host.start_ns, trace.ints("start_ns")[work.row]),
        segments.threads,
        all_edges([host.edges, into, found.edges, limits.edges, batches.edges]),
    )
    graph = joined(trace, graph, leads, segments.after)
    met = meet(trace, graph, work, leads, segments.first, segments.after, of_row)
    return Replay(trace, met.graph, segments.first, segments.after, of_row, met.tied, met.apart, met.rank, met.ahead_ns)


def leaders(trace: Trace, segments: Segments, rank: IntArray) -> BoolArray:
    """The threads that run the steps; of a rank without steps the one with the most events. Shape (threads,), as
    ``rank`` of each."""
    found = np.zeros(segments.threads, np.bool_)
    rows = np.flatnonzero(trace.rows("kind", STEP) & (segments.first >= 0))
    found[segments.thread[segments.first[rows]]] = True
    events = np.bincount(segments.thread[segments.row >= 0], minlength=segments.threads)
    for one in np.setdiff1d(rank, rank[found]):
        found[np.argmax(np.where(rank == one, events, -1))] = True
    return found


def _ranks(trace: Trace, segments: Segments) -> IntArray:
    """The rank of each thread, shape (threads,)."""
    owned = segments.row >= 0
    rank = np.full(segments.threads, -1, np.int64)
    rank[segments.thread[owned]] = trace.ints("rank")[segments.row[owned]]
    return rank


def _busy(trace: Trace, segments: Segments, calls: IntArray, busy_ns: IntArray) -> IntArray:
    """What each segment takes without waiting for a device: its time, of the calls that wait what they take alone."""
    dur = segments.end_ns - segments.start_ns
    last = segments.after[calls] - 1
    before = segments.start_ns[last] - trace.ints("start_ns")[calls]
    dur[last] = np.clip(busy_ns - before, 0, dur[last])
    return dur


def _launches(trace: Trace, work: DeviceWork, segments: Segments) -> IntArray:
    launched_by = trace.ints("launched_by")[work.row]
    return np.where(launched_by >= 0, segments.first[launched_by], -1)
