"""Which streams wait for which on a rank that does not show it, because another rank does?

That work of one stream waits for a collective, or a collective for work, is seen where it made something late. The last
rank to come never waits, so its recording shows nothing; but all ranks run one program, and the same work of another
rank shows it. Work is the same when it has the same name and the same place in its stream, counted from the launch of
the collective. What began too early to have waited did not.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.replay.device_work import DeviceWork
from perfkit_core.replay.graph import EVENT, Edges, Graph, all_edges, edges
from perfkit_core.trace import IntArray, Trace


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
