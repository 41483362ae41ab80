"""Stretches of host time take less long, whatever event they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.intervals import Intervals
from perfkit_core.replay.build import Replay
from perfkit_core.replay.graph import Graph
from perfkit_core.replay.quantity import Case, Number, value


@dataclass(frozen=True, slots=True, eq=False)
class Shorten:
    """What the host threads of each rank do within its ``gaps`` (disjoint, on its clock in the trace) takes ``factor``
    times as long. Other threads of the rank that work there at the time belong into no gap."""

    gaps: Mapping[int, Intervals]
    factor: Number

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        dur = graph.dur_ns.copy()
        for rank, gaps in self.gaps.items():
            nodes = replay.hosts(rank)  # of those that were recorded
            start = replay.recorded_ns(nodes)
            within = covered_ns(gaps, start, start + replay.graph.dur_ns[nodes])
            less = np.rint(within * (1 - value(self.factor, case))).astype(np.int64)
            dur[nodes] -= np.minimum(less, dur[nodes])
        return graph.with_durations(dur)
