"""Joint replay of several ranks on one clock. Ranks wait for each other in synchronous collectives.

No rank leaves a synchronous collective, for example an all-reduce, before the last rank has arrived. The replay cuts
such a collective in two on each rank. The arrival takes no time. The transfer begins after the last arrival, and takes
the recorded time from the last arrival to the end. Collectives that are not synchronous, not matched, or of a rank with
an unknown clock are replayed as recorded.

Within a rank, work of another stream may wait for a collective, and a collective may wait for work of another stream.
The recording of a rank shows such a wait only if the wait delayed something. All ranks run the same program. So if one
rank shows a wait, ``shown_elsewhere`` adds this wait to the other ranks of the collective."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import BoolArray, IntArray
from perfkit_core.replay import graph
from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.communication.clock_model import MOST_CROSSING_NS, clock_offsets, meetings
from perfkit_core.views.communication.instances import UNMATCHED, instances, matched
from perfkit_core.views.select import ranks


def shown_elsewhere(
    trace: Trace, steps_graph: graph.Graph, work: DeviceWork, nodes: IntArray, node: IntArray, match: IntArray
) -> graph.Edges:
    """Return edges for waits between a collective and device work of another stream. If one rank shows a wait, each
    rank of the collective gets an edge between the collective and the corresponding work.

    Work on two ranks corresponds if its name, its stream id and its position in the stream are equal. The position is
    counted from the launch of the collective. A rank gets no edge if it has no corresponding work, or if the waiting
    work began before the awaited work ended.

    - ``nodes``: for each piece of ``work``, its node in ``steps_graph``.
    - ``node``, ``match``: for each rank in each collective, its node and the number of the collective."""
    position = np.full(len(steps_graph), -1, np.int64)
    position[nodes] = np.arange(len(work))
    on_device = position[node] >= 0
    members = pd.DataFrame({"at": position[node[on_device]], "match": match[on_device]})
    if members.empty:
        return graph.all_edges([])
    places, shown = _Places(trace, work), []
    members["rank"] = places.rank[members["at"]]
    links = steps_graph.edges.only(steps_graph.edges.cause == graph.EVENT)
    src, dst = position[links.src], position[links.dst]
    for into in (False, True):  # False: other work waits for collectives; True: collectives wait for other work
        ends = pd.DataFrame({"at": dst if into else src, "other": src if into else dst})
        ends = ends[(ends >= 0).all(axis=1)].merge(members, on="at")
        other = ends["other"].to_numpy(np.int64)
        ends["stream"], ends["name"], ends["into"] = places.stream[other], places.name[other], into
        ends["distance"] = other - places.launched_after(places.lane[other], ends["at"].to_numpy(np.int64))
        shown.append(ends.drop(columns=["at", "other", "rank"]))
    recorded = pd.concat(shown).sort_values(["match", "stream", "into", "distance"])
    expected = recorded.drop_duplicates(["match", "stream", "into"]).merge(members, on="match")
    lane = places.lane_of(expected["rank"].to_numpy(np.int64), expected["stream"].to_numpy(np.int64))
    expected, lane = expected[lane >= 0], lane[lane >= 0]
    at, into_collective = expected["at"].to_numpy(np.int64), expected["into"].to_numpy(np.bool_)
    other = places.launched_after(lane, at) + expected["distance"].to_numpy(np.int64)
    same = (other >= places.first[lane]) & (other < places.first[lane + 1])
    other = np.where(same, other, at)
    same &= (places.name[other] == expected["name"].to_numpy()) & (places.lane[other] != places.lane[at])
    before, behind = np.where(into_collective, other, at), np.where(into_collective, at, other)
    same &= places.end_ns[before] <= places.start_ns[behind]
    return graph.edges(graph.EVENT, nodes[before[same]], nodes[behind[same]])


class _Places:
    """Times, rank, stream and name of device work, arrays of shape (work,). ``first`` holds the position of the first
    work of each stream. Its last item is the length of the other arrays."""

    def __init__(self, trace: Trace, work: DeviceWork) -> None:
        launched_by, start = trace.ints("launched_by")[work.row], trace.ints("start_ns")
        self.start_ns, self.end_ns = start[work.row], trace.end_ns[work.row]
        self.launch_ns = np.where(launched_by >= 0, start[launched_by], self.start_ns)
        self.rank, self.stream = trace.ints("rank")[work.row], trace.ints("stream")[work.row]
        self.name, self.lane = trace.codes("name").codes[work.row], work.lane
        self.first = np.searchsorted(work.lane, np.arange(work.lanes + 1))
        head = self.first[:-1]
        self._lanes = pd.Series(np.arange(work.lanes), pd.MultiIndex.from_arrays([self.rank[head], self.stream[head]]))
        self._lanes = self._lanes[~self._lanes.index.duplicated(keep=False)]

    def lane_of(self, rank: IntArray, stream: IntArray) -> IntArray:
        """Return the lane of each pair of a rank and a stream id. The lane is -1 if no or several streams match."""
        keys = pd.MultiIndex.from_arrays([rank, stream])
        return self._lanes.reindex(keys).fillna(-1).to_numpy(np.int64)

    def launched_after(self, lane: IntArray, at: IntArray) -> IntArray:
        position = np.empty(len(at), np.int64)
        for number in np.unique(lane):
            here, low, high = lane == number, self.first[number], self.first[number + 1]
            launches = np.maximum.accumulate(self.launch_ns[low:high])
            position[here] = low + np.searchsorted(launches, self.launch_ns[at[here]], side="right")
        return position


@dataclass(frozen=True, slots=True)
class _Members:
    """Members of collectives, arrays of shape (members,). A member is the part of one rank in one collective. Members
    of the same collective wait for each other."""

    node: IntArray  # node of the member in the graph
    match: IntArray  # number of the collective, counted from 0

    def only(self, mask: BoolArray) -> _Members:
        """Return the members in the mask. Collectives of which only one member is left are dropped."""
        match, node = self.match[mask], self.node[mask]
        several = np.bincount(match)[match] > 1 if len(match) else np.empty(0, np.bool_)
        return _Members(node[several], np.unique(match[several], return_inverse=True)[1].astype(np.int64))


def meet(replay: graph.Replay, work: DeviceWork, leads: BoolArray) -> graph.Replay:
    """Return the replay with all ranks on one clock, and with edges between ranks that wait for each other.
    ``leads``: mask of the threads that run the steps, shape (threads,)."""
    trace, steps_graph = replay.trace, replay.graph
    if len(ranks(trace)) < 2:
        return replay
    collectives = matched(instances(trace), trace.meta.world_size)
    clocks = clock_offsets(collectives)
    offsets = clocks["constant_ns"]  # ignore drift, which would change the durations of nodes
    ahead_ns = np.asarray(offsets.reindex(replay.rank).fillna(0), np.int64)
    steps_graph = replace(steps_graph, start_ns=steps_graph.start_ns - ahead_ns[steps_graph.lane])
    # the node of a collective is its device work or, without device work, the longest segment of its call
    rows = collectives["row"].to_numpy(np.int64)
    node = replay.work[rows].copy()
    for at in np.flatnonzero((node < 0) & (replay.first[rows] >= 0)).tolist():
        low, high = int(replay.first[rows[at]]), int(replay.after[rows[at]])
        node[at] = low + int(steps_graph.dur_ns[low:high].argmax()) if high > low else -1
    meeting = meetings(collectives, clocks).reindex(collectives.index, fill_value=UNMATCHED)
    usable = (meeting != UNMATCHED) & collectives["rank"].map(offsets).notna()
    members = _members(steps_graph, node, np.asarray(meeting, np.int64), usable.to_numpy(np.bool_), leads)
    shown = shown_elsewhere(trace, steps_graph, work, replay.work[work.row], members.node, members.match)
    steps_graph = replace(steps_graph, edges=graph.all_edges([steps_graph.edges, shown]))
    # if the graph has a cycle, leave out collectives that end on one rank before the last rank arrives
    early = _early_ns(steps_graph, members) > 0
    for those in (members, members.only(~np.isin(members.match, members.match[early]))):
        tied = _tied(steps_graph, those)
        with suppress(graph.CyclicGraphError):
            graph.play(tied)
            count = len(those.node)
            return replace(replay, graph=tied, tied=count, untied=len(collectives) - count, ahead_ns=ahead_ns)
    return replace(replay, graph=steps_graph, untied=len(collectives), ahead_ns=ahead_ns)


def _members(
    steps_graph: graph.Graph, node: IntArray, match: IntArray, usable: BoolArray, leads: BoolArray
) -> _Members:
    """A member is the part of one rank in a collective. Return the members that can wait for the other ranks."""
    usable = usable & (node >= 0)
    links, hosts = steps_graph.edges, steps_graph.on_host[node]
    usable[hosts] &= ~(
        np.isin(node, links.src[links.cause == graph.HANDOFF])[hosts] & leads[steps_graph.lane[node[hosts]]]
    )
    usable[usable] &= np.bincount(node[usable], minlength=len(steps_graph))[node[usable]] == 1
    members = _Members(node[usable], match[usable]).only(np.ones(int(usable.sum()), np.bool_))
    early = _early_ns(steps_graph, members) > MOST_CROSSING_NS
    return members.only(~np.isin(members.match, members.match[early]))


def _arrival_ns(steps_graph: graph.Graph, members: _Members) -> IntArray:
    arrival = np.full(int(members.match.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    np.maximum.at(arrival, members.match, steps_graph.start_ns[members.node])
    return arrival


def _early_ns(steps_graph: graph.Graph, members: _Members) -> IntArray:
    """Return the time from the end of each member to the arrival of the last rank, in ns, shape (members,). A positive
    time is an error of the clocks, because no member ends before the last rank arrives."""
    end = steps_graph.start_ns[members.node] + steps_graph.dur_ns[members.node]
    return _arrival_ns(steps_graph, members)[members.match] - end


def _tied(steps_graph: graph.Graph, members: _Members) -> graph.Graph:
    """Return the graph in which the members of each collective wait for each other. Each collective gets a node for the
    moment at which all members have arrived. Each member gets a node for its transfer, which waits for this moment.
    Edges from the end of a member begin at the end of its transfer instead."""
    node, count = members.node, len(members.node)
    arrival, early = _arrival_ns(steps_graph, members), _early_ns(steps_graph, members)
    meeting = len(steps_graph) + members.match
    transfer = len(steps_graph) + len(arrival) + np.arange(count)
    host, row = steps_graph.on_host[node], steps_graph.row[node]
    links = [
        graph.edges(graph.CHAIN, node[host], transfer[host]),
        graph.edges(graph.STREAM, node[~host], transfer[~host]),
        graph.edges(graph.MEETING, node, meeting, 0, row),
        graph.edges(graph.MEETING, meeting, transfer, np.minimum(-early, 0), row),
    ]
    lane = np.zeros(len(arrival), np.int64)
    lane[members.match] = steps_graph.lane[node]
    return steps_graph.continued(node, transfer).with_nodes(
        np.append(np.zeros(len(arrival), np.int64), np.maximum(-early, 0)),
        np.append(np.full(len(arrival), -1), row),
        np.append(lane, steps_graph.lane[node]),
        np.append(arrival, np.maximum(arrival[members.match] - np.maximum(early, 0), 0)),
        links,
    )
