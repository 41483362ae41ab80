"""When does every node of a graph start? One pass in the order of dependence, in time linear in nodes and edges."""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.errors import PerfkitError
from perfkit_core.replay.graph import Graph
from perfkit_core.runtime.compile import compiled


class CyclicGraphError(PerfkitError):
    """Nodes that wait for each other: an edit put something before what it needs."""


def play(graph: Graph) -> IntArray:
    """Start of each node in ns, shape (nodes,): as early as all edges into it allow; where there are none, as recorded.

    Raises CyclicGraphError.
    """
    edges = graph.edges
    order = np.argsort(edges.src, kind="stable")
    first = np.searchsorted(edges.src[order], np.arange(len(graph) + 1))
    start = graph.start_ns.copy()
    waits_for = np.bincount(edges.dst, minlength=len(graph)).astype(np.int64)
    start[waits_for > 0] = np.iinfo(np.int64).min
    played = _play(
        first, edges.dst[order], edges.lag_ns[order], edges.from_start[order], graph.dur_ns, waits_for, start
    )
    if played < len(graph):
        raise CyclicGraphError(f"{len(graph) - played} of {len(graph)} nodes of the replay wait for each other")
    return start


@compiled
def _play(first, dst, lag, from_start, dur, waits_for, start):  # type: ignore[no-untyped-def]
    """Sets ``start``; returns how many nodes could start. ``waits_for`` counts the edges that are open."""
    count = len(dur)
    ready = np.empty(count, np.int64)
    known = 0
    for node in range(count):
        if waits_for[node] == 0:
            ready[known] = node
            known += 1
    at = 0
    while at < known:
        node = ready[at]
        at += 1
        for edge in range(first[node], first[node + 1]):
            begin = start[node] + lag[edge]
            if not from_start[edge]:
                begin += dur[node]
            target = dst[edge]
            if begin > start[target]:
                start[target] = begin
            waits_for[target] -= 1
            if waits_for[target] == 0:
                ready[known] = target
                known += 1
    return at
