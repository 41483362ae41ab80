"""How long is each step when a graph is played?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.replay.build import Replay
from perfkit_core.schema import STEP
from perfkit_core.trace import IntArray


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

    def played_ns(self, start_ns: IntArray) -> IntArray:
        """Time of each step, given when the nodes start."""
        return start_ns[self.after] - start_ns[self.first]


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
    lanes = replay.graph.lane[replay.graph.on_host]
    if not len(lanes):
        nothing = np.empty(0, np.int64)
        return Steps(nothing, nothing, nothing, nothing, nothing)
    segments = np.flatnonzero(lanes == np.bincount(lanes).argmax())
    inside = segments[replay.graph.start_ns[segments].argsort(kind="stable")]
    first, after = inside[:1], inside[-1:]
    none = np.full(1, -1, np.int64)
    return Steps(none, none, first, after, replay.graph.start_ns[after] - replay.graph.start_ns[first])
