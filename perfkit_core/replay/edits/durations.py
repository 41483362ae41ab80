"""Events take longer or less long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.replay.build import Replay
from perfkit_core.replay.edits.contract import nodes_of
from perfkit_core.replay.graph import Graph
from perfkit_core.replay.quantity import Case, Number, value
from perfkit_core.trace import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Events take ``factor`` times as long: on the host, on the device, or both. ``most_ns``: what each takes at most
    then, shape (rows,); None: as long as that is."""

    rows: IntArray
    factor: Number
    below: bool = True
    host: bool = True
    device: bool = True
    most_ns: IntArray | None = None

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        chosen = nodes_of(replay, graph, self.rows, self.below)
        chosen &= np.where(graph.on_host, self.host, self.device)
        scaled = np.rint(graph.dur_ns * value(self.factor, case)).astype(np.int64)
        if self.most_ns is not None:
            most = np.full(len(replay.trace) + 1, np.iinfo(np.int64).max)
            most[self.rows] = self.most_ns
            scaled = np.minimum(scaled, most[graph.row])
        return graph.with_durations(np.where(chosen, scaled, graph.dur_ns))


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Each of the rows takes so much longer: on the host, before what it does; on the device, its own work."""

    rows: IntArray
    host_ns: Number = 0
    device_ns: Number = 0

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        dur = graph.dur_ns.copy()
        for nodes, added in ((replay.first[self.rows], self.host_ns), (replay.work[self.rows], self.device_ns)):
            np.add.at(dur, nodes[nodes >= 0], round(value(added, case)))
        return graph.with_durations(dur)
