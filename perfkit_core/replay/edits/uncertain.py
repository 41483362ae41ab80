"""A change that only takes place in some of the cases: the recording does not tell whether it will."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit_core.replay.build import Replay
from perfkit_core.replay.edits.contract import Edit
from perfkit_core.replay.graph import Graph
from perfkit_core.replay.quantity import Case


@dataclass(frozen=True, slots=True, eq=False)
class InCases:
    """``change``, in ``cases`` alone; in the others the graph stays as it is."""

    change: Edit
    cases: tuple[Case, ...]

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        return self.change.apply(replay, graph, case) if case in self.cases else graph
