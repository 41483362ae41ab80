"""Which stretches of a step wait for a collective that another thread of the host carries out?

Such a collective is asked for early and waited for later, so the stretch that waits is not the one in which it began
(``handoffs``). It is the one in which it ends, when the step goes on shortly afterwards and no operator is at work.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfkit_core.analyses.communication.communicating import communication
from perfkit_core.replay.graph import CHAIN, HANDOFF, Graph, all_edges, edges
from perfkit_core.replay.handoffs import RETURN_NS, RETURN_SHARE
from perfkit_core.schema import OPERATOR, RUNTIME, SYNC
from perfkit_core.trace import BoolArray, IntArray, Trace


def joined(trace: Trace, graph: Graph, leads: BoolArray, after: IntArray) -> Graph:
    """With stretches of the threads that run the steps (``leads``, shape (threads,)) cut where a collective ends that
    they wait for: the first part is waiting and takes no time of its own. ``after``: see ``build.Replay``."""
    calls = np.flatnonzero(communication(trace).host & (after >= 0))
    calls = calls[~leads[graph.lane[after[calls]]]]
    waits = _waiting(trace, graph, leads, after, calls)
    calls, waits = calls[waits >= 0], waits[waits >= 0]
    return _cut(trace, graph, after, calls, waits) if len(calls) else graph


def _waiting(trace: Trace, graph: Graph, leads: BoolArray, after: IntArray, calls: IntArray) -> IntArray:
    """For each collective the node that waits for it; -1: none."""
    found = np.full(len(calls), -1, np.int64)
    rank, over = trace.ints("rank")[calls], trace.end_ns[calls]
    for lane in np.flatnonzero(leads).tolist():
        nodes = np.flatnonzero((graph.lane == lane) & (graph.dur_ns > 0))
        nodes = nodes[np.argsort(graph.start_ns[nodes], kind="stable")]
        owner = graph.row[nodes[graph.row[nodes] >= 0]]
        mine = np.flatnonzero(rank == trace.ints("rank")[owner[0]]) if len(owner) else np.empty(0, np.int64)
        if not len(mine):
            continue
        at = np.searchsorted(graph.start_ns[nodes], over[mine], side="left") - 1
        node = nodes[np.maximum(at, 0)]
        left = graph.start_ns[node] + graph.dur_ns[node] - over[mine]
        soon = np.maximum(RETURN_NS, (graph.dur_ns[node] * RETURN_SHARE).astype(np.int64))
        waits = (at >= 0) & (left >= 0) & (left <= soon) & ~_at_work(trace, graph, node)
        found[mine[waits]] = node[waits]
    return found


def _at_work(trace: Trace, graph: Graph, node: IntArray) -> BoolArray:
    """Whether an operator or a call of a device's runtime has the time of a node."""
    owned: BoolArray = (graph.row[node] >= 0) & trace.rows("kind", OPERATOR, RUNTIME, SYNC)[graph.row[node]]
    return owned


def _cut(trace: Trace, graph: Graph, after: IntArray, calls: IntArray, waits: IntArray) -> Graph:
    """A node behind each one that waits: what is left of it when the last of its collectives is over."""
    node, which = np.unique(waits, return_inverse=True)
    over = np.full(len(node), np.iinfo(np.int64).min)
    np.maximum.at(over, which, trace.end_ns[calls])
    rest = np.arange(len(graph), len(graph) + len(node))
    ends_with = np.arange(len(graph))
    ends_with[node] = rest
    links = graph.edges
    links = replace(links, src=np.where(links.from_start, links.src, ends_with[links.src]))
    dur = graph.dur_ns.copy()
    left = graph.start_ns[node] + dur[node] - over
    dur[node] = 0
    return Graph(
        np.append(dur, left),
        np.append(graph.row, graph.row[node]),
        np.append(graph.lane, graph.lane[node]),
        np.append(graph.start_ns, over),
        graph.threads,
        all_edges(
            [
                links,
                edges(CHAIN, node, rest),
                edges(HANDOFF, after[calls], rest[which], owner=calls, from_start=True),
            ]
        ),
    )
