"""Many launches become one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.replay.build import Replay
from perfkit_core.replay.graph import STREAM, Graph
from perfkit_core.replay.quantity import Case, Number, value
from perfkit_core.replay.transforms.transform import nodes_of


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Launches become one: a captured graph, a fused kernel's launch. The host events ``rows`` take ``host_ns``
    together (on the first), and their work follows without gaps beyond ``gap_ns``.

    ``group`` of each row, shape (rows,): rows of equal groups become one launch each, as the launches of each step do.
    None: all are one.
    """

    rows: IntArray
    host_ns: Number
    gap_ns: Number = 1000
    group: IntArray | None = None

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        inside = nodes_of(replay, graph, self.rows, True)
        host = inside & graph.on_host
        dur = np.where(host, 0, graph.dur_ns)
        dur[replay.first[self._firsts(replay)]] += round(value(self.host_ns, case))
        links = graph.edges
        work = inside & ~graph.on_host
        gap = round(value(self.gap_ns, case))
        lag = np.where(work[links.dst] & (links.cause == STREAM), np.minimum(links.lag_ns, gap), links.lag_ns)
        return replace(graph, dur_ns=dur, edges=replace(links, lag_ns=lag))

    def _firsts(self, replay: Replay) -> IntArray:
        """The earliest row of each group."""
        if self.group is None:
            return self.rows[:1]
        start = replay.trace.ints("start_ns")[self.rows]
        order = np.lexsort((start, self.group))
        firsts: IntArray = self.rows[order][np.diff(self.group[order], prepend=self.group.min() - 1) != 0]
        return firsts
