"""What is an edit, and which nodes does it touch?

Rows are those of the trace. An edit changes the nodes of its rows and, ``below``, of everything inside them: host
events with their children, and the device work that those launched.

A change that only takes place in some of the cases: the recording does not tell whether it will.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.replay.build import Replay
from perfkit_core.replay.graph import Graph
from perfkit_core.replay.quantity import Case


class Edit(Protocol):
    """A change of the graph, as plain data (a frozen dataclass of numbers, quantities and arrays of rows)."""

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        """The changed graph; nodes keep their numbers, new ones follow."""
        ...


def edited(replay: Replay, changes: Sequence[Edit], case: Case = Case.LIKELY) -> Graph:
    """The graph with all changes, one after the other."""
    graph = replay.graph
    for change in changes:
        graph = change.apply(replay, graph, case)
    return graph


def chosen_rows(replay: Replay, rows: IntArray, below: bool) -> BoolArray:
    """The rows, and with ``below`` all inside them and the device work of those, shape (rows of the trace,)."""
    trace = replay.trace
    chosen = np.zeros(len(trace), np.bool_)
    chosen[rows] = True
    if below:
        chosen |= nesting.lies_in(trace.ints("parent"), chosen)
        launched_by = trace.ints("launched_by")
        chosen |= (launched_by >= 0) & chosen[launched_by]
    return chosen


def nodes_of(replay: Replay, graph: Graph, rows: IntArray, below: bool) -> BoolArray:
    """The nodes whose time belongs to the rows, shape (nodes,)."""
    found: BoolArray = (graph.row >= 0) & chosen_rows(replay, rows, below)[graph.row]
    return found


def inclusive_ns(replay: Replay, graph: Graph, rows: IntArray, inside: BoolArray) -> IntArray:
    """Time of the chosen nodes within each of the rows, which do not overlap, shape (len(rows),)."""
    owner = np.full(len(replay.trace), -1, np.int64)
    owner[rows] = np.arange(len(rows))
    owner = nesting.first_on_path(replay.trace.ints("parent"), owner)
    total = np.zeros(len(rows), np.int64)
    nodes = np.flatnonzero(inside)
    np.add.at(total, owner[graph.row[nodes]], graph.dur_ns[nodes])
    return total


@dataclass(frozen=True, slots=True, eq=False)
class InCases:
    """``change``, in ``cases`` alone; in the others the graph stays as it is."""

    change: Edit
    cases: tuple[Case, ...]

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        return self.change.apply(replay, graph, case) if case in self.cases else graph
