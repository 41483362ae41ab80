"""Events do not take place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from perfkit_core.replay.build import Replay
from perfkit_core.replay.edits.contract import chosen_rows, nodes_of
from perfkit_core.replay.graph import CHAIN, LAUNCH, STREAM, Graph
from perfkit_core.replay.quantity import Case
from perfkit_core.trace import IntArray

_PASSED_ON: Final = (CHAIN, LAUNCH, STREAM)
"""What is removed takes no time, but its neighbours keep their order: nothing behind it begins before what is in front
of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Remove:
    """Events do not take place, nor what they launched; nobody waits for them."""

    rows: IntArray
    below: bool = True

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        rows = chosen_rows(replay, self.rows, self.below)
        gone = nodes_of(replay, graph, self.rows, self.below)
        links = graph.edges
        caused = (links.owner >= 0) & rows[links.owner]
        kept = links.only(~caused | np.isin(links.cause, _PASSED_ON))
        lag = np.where(gone[kept.dst] & (kept.cause == LAUNCH), 0, kept.lag_ns)
        lag = np.where(gone[kept.src] & (kept.cause == STREAM), np.minimum(lag, 0), lag)
        return replace(graph, dur_ns=np.where(gone, 0, graph.dur_ns), edges=replace(kept, lag_ns=lag))
