"""Calls return without waiting for a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from perfkit_core.replay.build import Replay
from perfkit_core.replay.edits.contract import chosen_rows, nodes_of
from perfkit_core.replay.graph import WAIT, Graph
from perfkit_core.replay.quantity import Case, Number, value
from perfkit_core.trace import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Unblock:
    """Calls take place but wait for no device work: copies of pinned memory, ``non_blocking``. Each takes ``most_ns``
    at most on the host, None: what it was recorded to take without waiting."""

    rows: IntArray
    most_ns: Number | None = None

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        calls = chosen_rows(replay, self.rows, False)
        links = graph.edges
        waits = (links.cause == WAIT) & (links.owner >= 0) & calls[links.owner]
        dur = graph.dur_ns
        if self.most_ns is not None:
            most = round(value(self.most_ns, case))
            dur = np.where(nodes_of(replay, graph, self.rows, False) & graph.on_host, np.minimum(dur, most), dur)
        return replace(graph, dur_ns=dur, edges=links.only(~waits))
