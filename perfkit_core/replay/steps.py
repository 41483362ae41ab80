"""How long is each step when a graph is played?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms import groupby
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace
from perfkit_core.replay.build import Replay
from perfkit_core.replay.graph import Graph
from perfkit_core.views.communication.instances import communication


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a recording, arrays of shape (steps,): ``number`` and ``rank`` of each, the nodes that begin with it and
    with its end, and its recorded time. Without recorded steps: the whole of the thread with the most events, number
    -1.
    """

    number: IntArray
    rank: IntArray
    first: IntArray
    after: IntArray
    recorded_ns: IntArray

    def __len__(self) -> int:
        return len(self.number)

    def only(self, kept: BoolArray) -> Steps:
        """Those for which ``kept``, shape (steps,), is true."""
        return Steps(*(getattr(self, name)[kept] for name in self.__slots__))

    def played_ns(self, start_ns: IntArray) -> IntArray:
        """Time of each step, given when the nodes start."""
        return start_ns[self.after] - start_ns[self.first]

    def lasting_ns(self, replay: Replay, graph: Graph, start_ns: IntArray, period: int = 1) -> IntArray:
        """Time of each step of a long training: a host that waits for nobody any more is ahead of its device by some
        steps at most, so a step takes no less than its work on the busiest stream; as long as recorded is enough.
        Of steps that wait for their device once in a ``period`` the last one does for all: the time of each period, as
        :meth:`of_periods` gives it."""
        played, stream, recorded = (
            self.of_periods(times, period)
            for times in (self.played_ns(start_ns), self._stream_ns(replay, graph), self.recorded_ns)
        )
        return np.maximum(played, np.minimum(stream, recorded))

    def of_periods(self, step_ns: IntArray, period: int) -> IntArray:
        """Mean time of so many steps in a row of a rank, counted from its first one; what is left at the end is none.
        Shape (periods,)."""
        if period == 1:
            return step_ns
        at = np.searchsorted(np.unique(self.number), self.number) // period
        which, codes = np.unique(np.stack([self.rank, at]), axis=1, return_inverse=True)
        total = np.zeros(which.shape[1], np.int64)
        np.add.at(total, codes.ravel(), step_ns)
        whole = np.bincount(codes.ravel(), minlength=len(total)) == period
        mean: IntArray = total[whole] // period
        return mean

    def _stream_ns(self, replay: Replay, graph: Graph) -> IntArray:
        """What the work of each step takes on its busiest stream, without communication, which may wait for others.
        Work without a recorded launch is of the step in which it ran; but what a stream does before the first work
        whose launch was recorded was launched before the recording."""
        trace = replay.trace
        work = np.flatnonzero(~graph.on_host & (graph.row >= 0))
        work = work[~communication(trace).device[graph.row[work]]]
        lane, start = graph.lane[work] - graph.threads, trace.ints("start_ns")[graph.row[work]]
        step = self.position(trace, graph.row[work])
        launched = trace.ints("launched_by")[graph.row[work]] >= 0
        lost = (step < 0) & ~launched & (start > _first(lane, start, launched)[lane])
        step[lost] = self._at(replay, graph.row[work[lost]])
        work, lane, step = work[step >= 0], lane[step >= 0], step[step >= 0]
        total = np.zeros((len(self), int(lane.max(initial=0)) + 1), np.int64)
        np.add.at(total, (step, lane), graph.dur_ns[work])
        most: IntArray = total.max(axis=1)
        return most

    def position(self, trace: Trace, rows: IntArray) -> IntArray:
        """To which of the steps each row belongs (-1: none)."""
        if len(self) == 1 and self.number[0] < 0:
            return np.zeros(len(rows), np.int64)
        columns = (self.rank, "rank"), (self.number, "step")
        keys = [np.concatenate([own, trace.ints(name)[rows]]) for own, name in columns]
        code, first = groupby.sorted_codes(keys, len(keys[0]))
        position = np.full(len(first), -1, np.int64)
        position[code[: len(self)]] = np.arange(len(self))
        return position[code[len(self) :]]

    def _at(self, replay: Replay, rows: IntArray) -> IntArray:
        """In which of the steps of its rank each row was recorded to start (-1: none)."""
        begin, end = replay.recorded_ns(self.first), replay.recorded_ns(self.after)
        start, rank = replay.trace.ints("start_ns")[rows], replay.trace.ints("rank")[rows]
        found = np.full(len(rows), -1, np.int64)
        for one in np.unique(rank):
            steps, of_rank = np.flatnonzero(self.rank == one), rank == one
            at = np.append(steps, -1)[np.searchsorted(begin[steps], start[of_rank], side="right") - 1]
            found[of_rank] = np.where((at >= 0) & (start[of_rank] < np.append(end, 0)[at]), at, -1)
        return found


def _first(lane: IntArray, start_ns: IntArray, launched: BoolArray) -> IntArray:
    """When the first work of each lane begins whose launch was recorded (least of all numbers: there is none)."""
    first = np.full(int(lane.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, lane[launched], start_ns[launched])
    return np.where(first == np.iinfo(np.int64).max, np.iinfo(np.int64).min, first)


def steps(replay: Replay) -> Steps:
    """The steps of a replay."""
    trace = replay.trace
    rows = np.flatnonzero(trace.host & trace.rows("kind", STEP) & (replay.first >= 0))
    if len(rows):
        first, after = replay.first[rows], replay.after[rows]
        found = trace.ints("step")[rows], trace.ints("rank")[rows], first, after
        return Steps(*found, replay.graph.start_ns[after] - replay.graph.start_ns[first])
    return _whole(replay)


def _whole(replay: Replay) -> Steps:
    graph = replay.graph
    lanes = graph.lane[graph.on_host]
    if not len(lanes):
        nothing = np.empty(0, np.int64)
        return Steps(nothing, nothing, nothing, nothing, nothing)
    nodes = np.flatnonzero(graph.lane == np.bincount(lanes).argmax())
    inside = nodes[graph.start_ns[nodes].argsort(kind="stable")]
    first, after = inside[:1], inside[-1:]
    none = np.full(1, -1, np.int64)
    return Steps(
        none, replay.rank[graph.lane[first]], first, after, replay.graph.start_ns[after] - replay.graph.start_ns[first]
    )
