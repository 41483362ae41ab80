"""Which ranks wait for each other? A collective transfers once its last rank has come, on one clock for all that meet.

A collective that nobody leaves before the last one has come (``clock_offsets.SYNCHRONOUS``) is cut in two on each rank:
its arrival, which takes no time of its own, and the transfer, which takes what it was recorded to take after the last
arrival. Other collectives, those that cannot be matched, and ranks whose clock cannot be told stay as recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfkit_core.analyses.communication.clock_model import MOST_CROSSING_NS
from perfkit_core.analyses.communication.clock_offsets import clock_offsets, meetings
from perfkit_core.analyses.communication.instances import instances
from perfkit_core.analyses.communication.matching import UNMATCHED, matched
from perfkit_core.analyses.span import ranks
from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.replay.graph import CHAIN, HANDOFF, MEETING, STREAM, Graph, all_edges, edges
from perfkit_core.replay.shown_elsewhere import shown_elsewhere
from perfkit_core.replay.simulate import CyclicGraphError, play
from perfkit_core.trace import BoolArray, IntArray, Trace


@dataclass(frozen=True, slots=True)
class Meetings:
    """The graph on one clock, with ranks that meet. ``tied`` counts the collectives (one on each rank) that wait for
    other ranks, ``apart`` those that are replayed as recorded; both 0 for a recording of one rank. ``rank`` of each
    thread and stream, and by how much its clock is ahead of that of the graph, each of shape (lanes,)."""

    graph: Graph
    tied: int
    apart: int
    rank: IntArray
    ahead_ns: IntArray


@dataclass(frozen=True, slots=True)
class _Members:
    """Collectives that meet, arrays of shape (members,): ``node`` of each and ``match``, numbered from 0 on."""

    node: IntArray
    match: IntArray

    def __len__(self) -> int:
        return len(self.node)

    def only(self, kept: BoolArray) -> _Members:
        """The chosen ones, as far as several ranks of a collective are left."""
        match, node = self.match[kept], self.node[kept]
        several = np.bincount(match)[match] > 1 if len(match) else np.empty(0, np.bool_)
        return _Members(node[several], np.unique(match[several], return_inverse=True)[1].astype(np.int64))


def meet(
    trace: Trace, graph: Graph, work: DeviceWork, leads: BoolArray, first: IntArray, after: IntArray, nodes: IntArray
) -> Meetings:
    """The graph of a trace with its ranks tied together. ``leads``: the threads that run the steps, shape (threads,);
    ``first``, ``after``, and ``nodes`` (of work): those of events, see ``build.Replay``."""
    rank = _ranks(trace, graph)
    if len(ranks(trace)) < 2:
        return Meetings(graph, 0, 0, rank, np.zeros(len(rank), np.int64))
    found = matched(instances(trace), trace.meta.world_size)
    clocks = clock_offsets(found)
    offsets = clocks["constant_ns"]  # without a drift, which would change what nodes take
    ahead_ns = _of_lanes(rank, offsets)
    graph = replace(graph, start_ns=graph.start_ns - ahead_ns[graph.lane])
    node = _nodes(graph, found["row"].to_numpy(np.int64), first, after, nodes)
    meeting = meetings(found, clocks).reindex(found.index, fill_value=UNMATCHED)
    usable = (meeting != UNMATCHED) & found["rank"].map(offsets).notna()
    members = _members(graph, node, np.asarray(meeting, np.int64), usable.to_numpy(np.bool_), leads)
    shown = shown_elsewhere(trace, graph, work, nodes[work.row], members.node, members.match)
    graph = replace(graph, edges=all_edges([graph.edges, shown]))
    for those in _attempts(graph, members):
        tied = _tied(graph, those)
        if _can_be_played(tied):
            return Meetings(tied, len(those), len(found) - len(those), rank, ahead_ns)
    return Meetings(graph, 0, len(found), rank, ahead_ns)


def _ranks(trace: Trace, graph: Graph) -> IntArray:
    """The rank of each thread and stream, shape (lanes,)."""
    owned = np.flatnonzero(graph.row >= 0)
    rank = np.full(int(graph.lane.max(initial=-1)) + 1, -1, np.int64)
    rank[graph.lane[owned]] = trace.ints("rank")[graph.row[owned]]
    return rank


def _of_lanes(rank: IntArray, offsets: pd.Series[int]) -> IntArray:
    """The offset of the clock of each lane's rank, 0 where it is not known."""
    known, code = np.unique(rank, return_inverse=True)
    return np.asarray(offsets.reindex(known).fillna(0), np.int64)[code]


def _nodes(graph: Graph, rows: IntArray, first: IntArray, after: IntArray, work: IntArray) -> IntArray:
    """The node in which each collective waits: its work on the device, else the longest stretch of its call; -1 where
    there is none."""
    found = work[rows].copy()
    for at in np.flatnonzero((found < 0) & (first[rows] >= 0)).tolist():
        low, high = int(first[rows[at]]), int(after[rows[at]])
        found[at] = low + int(graph.dur_ns[low:high].argmax()) if high > low else -1
    return found


def _members(graph: Graph, node: IntArray, match: IntArray, usable: BoolArray, leads: BoolArray) -> _Members:
    """Those that can wait for each other: a node is of one collective, and no thread that runs steps waits there
    for another of its threads; no rank leaves long before the last one comes."""
    usable = usable & (node >= 0)
    links, hosts = graph.edges, graph.on_host[node]
    usable[hosts] &= ~(np.isin(node, links.src[links.cause == HANDOFF])[hosts] & leads[graph.lane[node[hosts]]])
    usable[usable] &= np.bincount(node[usable], minlength=len(graph))[node[usable]] == 1
    found = _Members(node[usable], match[usable]).only(np.ones(int(usable.sum()), np.bool_))
    early = _early_ns(graph, found) > MOST_CROSSING_NS
    return found.only(~np.isin(found.match, found.match[early]))


def _arrival_ns(graph: Graph, members: _Members) -> IntArray:
    """When the last rank comes to each collective, shape (collectives,)."""
    found = np.full(int(members.match.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(found, members.match, graph.start_ns[members.node])
    return found


def _early_ns(graph: Graph, members: _Members) -> IntArray:
    """By how much each member ends before the last one comes: what clocks cannot tell, or less than 0."""
    end = graph.start_ns[members.node] + graph.dur_ns[members.node]
    return _arrival_ns(graph, members)[members.match] - end


def _attempts(graph: Graph, members: _Members) -> Iterator[_Members]:
    """All, or else those that do not go back in time: they cannot wait for each other in a circle."""
    yield members
    early = _early_ns(graph, members) > 0
    yield members.only(~np.isin(members.match, members.match[early]))


def _can_be_played(graph: Graph) -> bool:
    try:
        play(graph)
    except CyclicGraphError:
        return False
    return True


def _tied(graph: Graph, members: _Members) -> Graph:
    """With a node for each meeting and one for each transfer behind the nodes there are: arrivals → meeting →
    transfers. What began with the end of a collective now begins with that of its transfer."""
    node, count = members.node, len(members)
    arrival, early = _arrival_ns(graph, members), _early_ns(graph, members)
    meeting = len(graph) + members.match
    transfer = len(graph) + len(arrival) + np.arange(count)
    ends_with = np.arange(len(graph))
    ends_with[node] = transfer
    links = graph.edges
    links = replace(links, src=np.where(links.from_start, links.src, ends_with[links.src]))
    dur = graph.dur_ns.copy()
    dur[node] = 0
    host, row = graph.on_host[node], graph.row[node]
    own = [edges(cause, node[chosen], transfer[chosen]) for cause, chosen in ((CHAIN, host), (STREAM, ~host))]
    meets = edges(MEETING, node, meeting, 0, row)
    goes_on = edges(MEETING, meeting, transfer, np.minimum(-early, 0), row)
    lane = np.zeros(len(arrival), np.int64)
    lane[members.match] = graph.lane[node]
    return Graph(
        np.concatenate([dur, np.zeros(len(arrival), np.int64), np.maximum(-early, 0)]),
        np.concatenate([graph.row, np.full(len(arrival), -1), row]),
        np.concatenate([graph.lane, lane, graph.lane[node]]),
        np.concatenate([graph.start_ns, arrival, np.maximum(arrival[members.match] - np.maximum(early, 0), 0)]),
        graph.threads,
        all_edges([links, *own, meets, goes_on]),
    )
