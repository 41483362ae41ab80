"""Events take longer or less long.

Stretches of host time take less long, whatever event they belong to.

Events do not take place.

Calls return without waiting for a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.replay.build import Replay
from perfkit_core.replay.graph import CHAIN, LAUNCH, STREAM, WAIT, Graph
from perfkit_core.replay.quantity import Case, Number, value
from perfkit_core.replay.transforms.transform import chosen_rows, nodes_of
from perfkit_core.views.steps.activity import covered_ns


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Events take ``factor`` times as long: on the host, on the device, or both. ``most_ns``: what each takes at most
    then, shape (rows,); None: as long as that is."""

    rows: IntArray
    factor: Number
    below: bool = True
    host: bool = True
    device: bool = True
    most_ns: IntArray | None = None

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        chosen = nodes_of(replay, graph, self.rows, self.below)
        chosen &= np.where(graph.on_host, self.host, self.device)
        scaled = np.rint(graph.dur_ns * value(self.factor, case)).astype(np.int64)
        if self.most_ns is not None:
            most = np.full(len(replay.trace) + 1, np.iinfo(np.int64).max)
            most[self.rows] = self.most_ns
            scaled = np.minimum(scaled, most[graph.row])
        return graph.with_durations(np.where(chosen, scaled, graph.dur_ns))


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Each of the rows takes so much longer: on the host, before what it does; on the device, its own work."""

    rows: IntArray
    host_ns: Number = 0
    device_ns: Number = 0

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        dur = graph.dur_ns.copy()
        for nodes, added in ((replay.first[self.rows], self.host_ns), (replay.work[self.rows], self.device_ns)):
            np.add.at(dur, nodes[nodes >= 0], round(value(added, case)))
        return graph.with_durations(dur)


@dataclass(frozen=True, slots=True, eq=False)
class Shorten:
    """What the host threads of each rank do within its ``gaps`` (disjoint, on its clock in the trace) takes ``factor``
    times as long. Other threads of the rank that work there at the time belong into no gap."""

    gaps: Mapping[int, Intervals]
    factor: Number

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        dur = graph.dur_ns.copy()
        for rank, gaps in self.gaps.items():
            nodes = replay.hosts(rank)  # of those that were recorded
            start = replay.recorded_ns(nodes)
            within = covered_ns(gaps, start, start + replay.graph.dur_ns[nodes])
            less = np.rint(within * (1 - value(self.factor, case))).astype(np.int64)
            dur[nodes] -= np.minimum(less, dur[nodes])
        return graph.with_durations(dur)


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
