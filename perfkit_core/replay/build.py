"""From a trace to the graph that replays it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.replay import device_work as devices
from perfkit_core.replay.batches import batch_waits
from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.replay.graph import Graph, all_edges
from perfkit_core.replay.handoffs import handoffs
from perfkit_core.replay.host_graph import host_graph
from perfkit_core.replay.host_segments import Segments, host_segments
from perfkit_core.replay.joins import joined
from perfkit_core.replay.launch_queue import queue_limits
from perfkit_core.replay.ranks import meet
from perfkit_core.replay.stream_waits import stream_waits
from perfkit_core.replay.sync_records import sync_records
from perfkit_core.replay.waits import waits
from perfkit_core.schema import STEP
from perfkit_core.trace import BoolArray, IntArray, Trace


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
