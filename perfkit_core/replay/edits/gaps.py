"""Stretches of host time take less long, whatever event they belong to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.analyses.step.exclusive import covered_ns
from perfkit_core.intervals import Intervals
from perfkit_core.replay.build import Replay
from perfkit_core.replay.graph import Graph
from perfkit_core.replay.quantity import Case, Number, value


@dataclass(frozen=True, slots=True, eq=False)
class Shorten:
    """What host threads do within ``gaps`` (disjoint, on the trace's clock) takes ``factor`` times as long. Other
    threads that work there at the time belong into no gap."""

    gaps: Intervals
    factor: Number

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        recorded = replay.graph
        start = recorded.start_ns
        within = covered_ns(self.gaps, start, start + recorded.dur_ns)
        less = np.rint(within * (1 - value(self.factor, case))).astype(np.int64)
        dur = graph.dur_ns.copy()
        kept = len(recorded)  # nodes that other edits added have no recorded time
        dur[:kept] -= np.where(recorded.on_host, np.minimum(less, dur[:kept]), 0)
        return graph.with_durations(dur)
