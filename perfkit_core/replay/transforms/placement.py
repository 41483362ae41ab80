"""Operators run somewhere else: on the host instead of a device, or the other way round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.replay import device_work as devices
from perfkit_core.replay.build import Replay
from perfkit_core.replay.device_work import Queued
from perfkit_core.replay.graph import LAUNCH, STREAM, Graph, all_edges, edges
from perfkit_core.replay.quantity import Case, Number, value
from perfkit_core.replay.transforms.durations import Insert, Remove

LAUNCH_NS = 5_000
"""From a launch to its work on an idle stream: typical of CUDA devices."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Operators run on the host instead of a device (``to_host``) or the other way round.

    To the host: the work that they launched does not take place, and each takes ``host_ns`` on the host. To a device:
    the host takes ``host_ns`` for the launch, and work of ``device_ns`` follows what was queued on the stream before.
    ``copies_gone`` are calls of copies and synchronisations that the move makes needless; ``copies_added`` copies of
    ``copy_ns`` each, waited for, that it needs before each operator.
    """

    rows: IntArray
    to_host: bool
    host_ns: Number
    device_ns: Number = 0
    copies_gone: IntArray | None = None
    copies_added: int = 0
    copy_ns: Number = 0

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        graph = Remove(self.rows).apply(replay, graph, case)
        if self.copies_gone is not None:
            graph = Remove(self.copies_gone).apply(replay, graph, case)
        graph = Insert(self.rows, value(self.host_ns, case) + self.copies_added * value(self.copy_ns, case)).apply(
            replay, graph, case
        )
        return graph if self.to_host else _queued(replay, graph, self.rows, round(value(self.device_ns, case)))


def _queued(replay: Replay, graph: Graph, rows: IntArray, dur_ns: int) -> Graph:
    """With device work for each host event, launched by it, in the busiest stream of its rank: it delays what that does
    next."""
    trace, work = replay.trace, devices.device_work(replay.trace)
    queued = Queued(trace, work)
    new = np.arange(len(graph), len(graph) + len(rows))
    links, lanes = [edges(LAUNCH, replay.first[rows], new, LAUNCH_NS, rows, True)], np.zeros(len(rows), np.int64)
    for rank in np.unique(trace.ints("rank")[rows]):
        here = np.flatnonzero(trace.ints("rank")[rows] == rank)
        lane = _busiest(queued, work.lane, int(rank))
        if lane is None:
            continue
        lanes[here] = lane
        start = trace.ints("start_ns")[rows[here]]
        for done, ahead in ((queued.ends_last(lane, start), True), (queued.next_after(lane, start), False)):
            known = done >= 0
            other, own = replay.work[work.row[done[known]]], new[here[known]]
            links.append(edges(STREAM, other, own) if ahead else edges(STREAM, own, other))
    return Graph(
        np.append(graph.dur_ns, np.full(len(rows), dur_ns)),
        np.append(graph.row, rows),
        np.append(graph.lane, graph.threads + lanes),
        np.append(graph.start_ns, trace.ints("start_ns")[rows]),
        graph.threads,
        all_edges([graph.edges, *links]),
    )


def _busiest(queued: Queued, lane: IntArray, rank: int) -> int | None:
    lanes, counts = np.unique(lane[queued.rank == rank], return_counts=True)
    return int(lanes[counts.argmax()]) if len(lanes) else None
