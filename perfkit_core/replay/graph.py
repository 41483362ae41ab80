"""The dependency graph of a recording: nodes that take time, edges that make them wait, and the simulation of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from perfkit_core.algorithms.arrays import BoolArray, ByteArray, IntArray
from perfkit_core.errors import PerfkitError
from perfkit_core.model.trace import Trace
from perfkit_core.runtime.compile import compiled

# Causes of edges:
CHAIN: Final = 0  # what a thread does next
LAUNCH: Final = 1  # device work after the call that launched it
STREAM: Final = 2  # device work after the work before it in its stream
EVENT: Final = 3  # device work after work of another stream
WAIT: Final = 4  # a thread that waits for device work
QUEUE: Final = 5  # a thread that waits for room in the queue of a device
HANDOFF: Final = 6  # a thread that waits for another thread
MEETING: Final = 7  # ranks that wait for each other in a collective
BATCH: Final = 8  # a thread that waits for a batch from the data loader


@dataclass(frozen=True, slots=True)
class Edges:
    """``dst`` starts no earlier than ``lag_ns`` after the end (or the start, where ``from_start``) of ``src``; arrays
    of shape (edges,). ``owner`` is the row of the event that causes the edge (-1: none) and is removed with it."""

    src: IntArray
    dst: IntArray
    lag_ns: IntArray
    from_start: BoolArray
    cause: ByteArray
    owner: IntArray

    def __len__(self) -> int:
        return len(self.src)

    def only(self, mask: BoolArray) -> Edges:
        """Return the edges of the mask."""
        return Edges(*(getattr(self, name)[mask] for name in self.__slots__))


def edges(
    cause: int, src: IntArray, dst: IntArray, lag_ns: IntArray | int = 0, owner: IntArray | int = -1,
    from_start: bool = False,
) -> Edges:  # fmt: skip
    """Return edges of one cause."""
    count = len(src)
    return Edges(
        src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False),
        np.broadcast_to(np.asarray(lag_ns, np.int64), count).copy(), np.full(count, from_start),
        np.full(count, cause, np.int8), np.broadcast_to(np.asarray(owner, np.int64), count).copy(),
    )  # fmt: skip


def all_edges(parts: Sequence[Edges]) -> Edges:
    """Return several sets of edges as one."""
    nothing = edges(CHAIN, np.empty(0, np.int64), np.empty(0, np.int64))
    return Edges(*(np.concatenate([getattr(part, name) for part in (nothing, *parts)]) for name in Edges.__slots__))


@dataclass(frozen=True, slots=True)
class Waits:
    """Calls that wait, arrays of shape (calls,): the ``row`` of each and ``busy_ns``, what it takes without waiting.
    ``edges`` lead to the nodes after the calls."""

    row: IntArray
    busy_ns: IntArray
    edges: Edges


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes as arrays of shape (nodes,), and edges between them.

    ``dur_ns`` is what a node takes once it has started, ``row`` the event that the time belongs to (-1: none),
    ``lane`` its thread or stream, ``start_ns`` the recorded start, which only counts for nodes without edges into
    them. Lanes below ``threads`` are host threads.
    """

    dur_ns: IntArray
    row: IntArray
    lane: IntArray
    start_ns: IntArray
    threads: int
    edges: Edges

    def __len__(self) -> int:
        return len(self.dur_ns)

    @property
    def on_host(self) -> BoolArray:
        """The mask of nodes of host threads."""
        return self.lane < self.threads

    def with_durations(self, dur_ns: IntArray) -> Graph:
        """Return the graph with other durations of the nodes."""
        return replace(self, dur_ns=dur_ns)

    def with_nodes(
        self, dur_ns: IntArray, row: IntArray, lane: IntArray, start_ns: IntArray, links: Sequence[Edges]
    ) -> Graph:
        """Return the graph with further nodes, numbered after its own, and further edges."""
        return Graph(
            np.append(self.dur_ns, dur_ns), np.append(self.row, row), np.append(self.lane, lane),
            np.append(self.start_ns, start_ns), self.threads, all_edges([self.edges, *links]),
        )  # fmt: skip

    def continued(self, node: IntArray, rest: IntArray) -> Graph:
        """Return the graph with nodes that take no time: what waited for their ends waits for those of ``rest``, nodes
        that the caller adds."""
        ends_with, dur = np.arange(len(self)), self.dur_ns.copy()
        ends_with[node], dur[node] = rest, 0
        links = self.edges
        src = np.where(links.from_start, links.src, ends_with[links.src])
        return replace(self, dur_ns=dur, edges=replace(links, src=src))


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace as a graph. ``first`` and ``after`` are the nodes that begin with each host event and with its end,
    ``work`` the node of each piece of device work, shape (rows,), -1 where there is none.

    ``tied`` counts the collectives (one on each rank) that wait for other ranks, ``apart`` those that are replayed as
    recorded; both are 0 for a recording of one rank. ``rank`` of each thread and stream, and ``ahead_ns``, by how much
    its clock in the trace is ahead of the common clock of the graph, have shape (lanes,).
    """

    trace: Trace
    graph: Graph
    first: IntArray
    after: IntArray
    work: IntArray
    tied: int
    apart: int
    rank: IntArray
    ahead_ns: IntArray

    def recorded_ns(self, nodes: IntArray) -> IntArray:
        """Return the recorded start of nodes on the clock of the trace, shape (len(nodes),)."""
        return self.graph.start_ns[nodes] + self.ahead_ns[self.graph.lane[nodes]]

    def hosts(self, rank: int) -> IntArray:
        """Return the nodes of the host threads of a rank."""
        return np.flatnonzero(self.graph.on_host & (self.rank[self.graph.lane] == rank))


class CyclicGraphError(PerfkitError):
    """Nodes wait for each other: a transform put a node before one that it needs."""


def play(graph: Graph) -> IntArray:
    """Return the start of each node in ns, shape (nodes,): as early as all edges into it allow; without edges, as
    recorded. Takes time linear in nodes and edges. Raises CyclicGraphError."""
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
    """Set ``start`` and return how many nodes could start. ``waits_for`` counts the open edges of each node."""
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
