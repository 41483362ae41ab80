"""Host events pass while the thread goes on: in another thread, or in the workers of a data loader."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.replay.build import Replay
from perfkit_core.replay.graph import BATCH, CHAIN, HANDOFF, Graph, all_edges, edges
from perfkit_core.replay.quantity import Case, Number, value
from perfkit_core.replay.transforms.transform import inclusive_ns, nodes_of


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """Host events that pass while the thread goes on: another thread does them from the start of the event on, and only
    ``until`` (rows; -1: nobody) waits for it."""

    rows: IntArray
    until: IntArray
    factor: Number = 1.0

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        first, after = replay.first[self.rows], replay.first[self.until]
        inside = nodes_of(replay, graph, self.rows, True) & graph.on_host
        total = inclusive_ns(replay, graph, self.rows, inside)
        new = np.arange(len(graph), len(graph) + len(self.rows))
        waits = self.until >= 0
        links = all_edges(
            [
                graph.edges,
                edges(CHAIN, first, new, from_start=True),
                edges(CHAIN, new[waits], after[waits]),
            ]
        )
        dur = np.append(np.where(inside, 0, graph.dur_ns), np.rint(total * value(self.factor, case)).astype(np.int64))
        return Graph(
            dur,
            np.append(graph.row, self.rows),
            np.append(graph.lane, graph.lane[first]),
            np.append(graph.start_ns, graph.start_ns[first]),
            graph.threads,
            links,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Batches come from ``workers`` processes of each rank. ``rows`` are the events in which the training gets its
    batches, those of a rank in the order of time. Making a batch takes ``batch_ns`` (None: as long as it was recorded
    to take in the training's own process), getting it ``handover_ns``; where others made it already (``batch_ns`` is
    given), as long as it was recorded to take beside the wait, and in place of the wait ``handover_ns`` at most.

    What was waited for in the recording is no more: these workers take the place of whatever made the batches.

    The workers together deliver a batch every ``batch_ns`` ÷ ``workers``, and work at most ``ahead`` batches for each
    worker in advance. The first batch is there: the steps are those of a loader that has been running.
    """

    rows: IntArray
    workers: Number
    batch_ns: Number | None = None
    handover_ns: Number = 0
    ahead: int = 2

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        ranks = replay.trace.ints("rank")
        rows = self.rows[np.argsort(ranks[self.rows], kind="stable")]
        rank = ranks[rows]
        inside = nodes_of(replay, graph, rows, True) & graph.on_host
        workers = value(self.workers, case)
        handover = round(value(self.handover_ns, case))
        waits = (graph.edges.cause == BATCH) & np.isin(graph.edges.owner, rows)
        first, after = replay.first[rows], replay.after[rows]
        if self.batch_ns is None:
            made = inclusive_ns(replay, graph, rows, inside)
            dur = np.where(inside, 0, graph.dur_ns)
            dur[first] += handover
        else:
            made = np.full(len(rows), value(self.batch_ns, case))
            dur, waiting = graph.dur_ns.copy(), graph.edges.dst[waits] - 1
            dur[waiting] = np.minimum(dur[waiting], handover)
        new = np.arange(len(graph), len(graph) + len(rows))
        begins = np.append(True, rank[1:] != rank[:-1])[: len(rows)]
        every = np.where(begins, 0, np.rint(made / workers).astype(np.int64))
        free = max(round(self.ahead * workers), 1)
        follows, fills = np.flatnonzero(~begins), free + np.flatnonzero(rank[free:] == rank[:-free])
        links = [
            edges(CHAIN, first[begins], new[begins], from_start=True),
            edges(CHAIN, new[follows - 1], new[follows]),
            edges(HANDOFF, new, after),
            edges(HANDOFF, after[fills - free], new[fills], from_start=True),
        ]
        return Graph(
            np.append(dur, every),
            np.append(graph.row, np.full(len(new), -1)),
            np.append(graph.lane, graph.lane[first]),
            np.append(graph.start_ns, graph.start_ns[first]),
            graph.threads,
            all_edges([graph.edges.only(~waits), *links]),
        )
