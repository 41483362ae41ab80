"""Which ranks wait for each other? A collective transfers once its last rank has come, on one clock for all that meet.

A collective that nobody leaves before the last one has come (``clock_model.SYNCHRONOUS``) is cut in two on each rank:
its arrival, which takes no time of its own, and the transfer, which takes what it was recorded to take after the last
arrival. Other collectives, those that cannot be matched, and ranks whose clock cannot be told stay as recorded.

Which streams wait for which on a rank that does not show it, because another rank does?

That work of one stream waits for a collective, or a collective for work, is seen where it made something late. The last
rank to come never waits, so its recording shows nothing; but all ranks run one program, and the same work of another
rank shows it. Work is the same when it has the same name and the same place in its stream, counted from the launch of
the collective. What began too early to have waited did not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.trace import Trace
from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.replay.graph import CHAIN, EVENT, HANDOFF, MEETING, STREAM, Edges, Graph, all_edges, edges
from perfkit_core.replay.simulate import CyclicGraphError, play
from perfkit_core.views.communication.clock_model import MOST_CROSSING_NS, clock_offsets, meetings
from perfkit_core.views.communication.instances import UNMATCHED, instances, matched
from perfkit_core.views.select import ranks


def shown_elsewhere(
    trace: Trace, graph: Graph, work: DeviceWork, nodes: IntArray, node: IntArray, match: IntArray
) -> Edges:
    """Edges that another rank shows. ``nodes`` are those of the work; ``node`` and ``match`` of each collective."""
    position = np.full(len(graph), -1, np.int64)
    position[nodes] = np.arange(len(work))
    on_device = position[node] >= 0
    members = pd.DataFrame({"at": position[node[on_device]], "match": match[on_device]})
    if members.empty:
        return all_edges([])
    places = _Places(trace, work)
    members["rank"] = places.rank[members["at"]]
    known = pd.concat([_shown(graph, members, position, places, into) for into in (False, True)])
    known = known.sort_values(["match", "stream", "into", "distance"])
    known = known.drop_duplicates(["match", "stream", "into"]).drop(columns="rank")
    return _repeated(places, nodes, known.merge(members, on="match"))


class _Places:
    """Where work stands in its stream; all arrays of shape (work,)."""

    def __init__(self, trace: Trace, work: DeviceWork) -> None:
        launched_by, start = trace.ints("launched_by")[work.row], trace.ints("start_ns")
        self.start_ns, self.end_ns = start[work.row], trace.end_ns[work.row]
        self.launch_ns = np.where(launched_by >= 0, start[launched_by], self.start_ns)
        self.rank, self.stream = trace.ints("rank")[work.row], trace.ints("stream")[work.row]
        self.name, self.lane = trace.codes("name").codes[work.row], work.lane
        self._first = np.searchsorted(work.lane, np.arange(work.lanes + 1))
        head = self._first[:-1]
        self._lanes = pd.Series(np.arange(work.lanes), pd.MultiIndex.from_arrays([self.rank[head], self.stream[head]]))
        self._lanes = self._lanes[~self._lanes.index.duplicated(keep=False)]

    def lane_of(self, rank: IntArray, stream: IntArray) -> IntArray:
        """The lane of a stream; -1 where a rank has none or several of that number."""
        wanted = pd.MultiIndex.from_arrays([rank, stream])
        return self._lanes.reindex(wanted).fillna(-1).to_numpy(np.int64)

    def launched_after(self, lane: IntArray, at: IntArray) -> IntArray:
        """The first work of a lane that was launched after the work ``at``."""
        found = np.empty(len(at), np.int64)
        for one in np.unique(lane):
            here, low, high = lane == one, self._first[one], self._first[one + 1]
            launches = np.maximum.accumulate(self.launch_ns[low:high])
            found[here] = low + np.searchsorted(launches, self.launch_ns[at[here]], side="right")
        return found

    def bounds(self, lane: IntArray) -> tuple[IntArray, IntArray]:
        """The first work of each lane and the one behind its last."""
        return self._first[lane], self._first[lane + 1]


def _shown(graph: Graph, members: pd.DataFrame, position: IntArray, places: _Places, into: bool) -> pd.DataFrame:
    """Waits of other work for collectives, or with ``into`` of collectives for other work: columns match, rank, stream,
    distance (of the work in its stream from the launch of the collective), name, into."""
    links = graph.edges.only(graph.edges.cause == EVENT)
    ends = pd.DataFrame(
        {"at": position[links.dst if into else links.src], "other": position[links.src if into else links.dst]}
    )
    found = ends[(ends >= 0).all(axis=1)].merge(members, on="at")
    other = found["other"].to_numpy(np.int64)
    found["stream"], found["name"], found["into"] = places.stream[other], places.name[other], into
    found["distance"] = other - places.launched_after(places.lane[other], found["at"].to_numpy(np.int64))
    return found.drop(columns=["at", "other"])


def _repeated(places: _Places, nodes: IntArray, wanted: pd.DataFrame) -> Edges:
    """The same edges on all ranks, as far as the same work is there and did wait."""
    at, into = wanted["at"].to_numpy(np.int64), wanted["into"].to_numpy(np.bool_)
    lane = places.lane_of(wanted["rank"].to_numpy(np.int64), wanted["stream"].to_numpy(np.int64))
    found = lane >= 0
    at, into, lane, wanted = at[found], into[found], lane[found], wanted[found]
    other = places.launched_after(lane, at) + wanted["distance"].to_numpy(np.int64)
    low, high = places.bounds(lane)
    same = (other >= low) & (other < high)
    other = np.where(same, other, at)
    same &= (places.name[other] == wanted["name"].to_numpy()) & (places.lane[other] != places.lane[at])
    before, behind = np.where(into, other, at), np.where(into, at, other)
    same &= places.end_ns[before] <= places.start_ns[behind]
    return edges(EVENT, nodes[before[same]], nodes[behind[same]])


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
