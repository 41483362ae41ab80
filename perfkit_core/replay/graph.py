"""The dependency graph of a recording, and its playback. Nodes take time, and edges make nodes wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar, cast

import numpy as np

from perfkit_core.base.algorithms.arrays import BoolArray, ByteArray, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.errors import PerfkitError
from perfkit_core.trace.model.trace import Trace

T = TypeVar("T")

# Causes of edges:
CHAIN: Final = 0  # a thread continues with its next node
LAUNCH: Final = 1  # device work follows the call that launched it
STREAM: Final = 2  # device work follows the previous work of its stream
EVENT: Final = 3  # device work waits for work of another stream
WAIT: Final = 4  # a thread waits for device work
QUEUE: Final = 5  # a thread waits for room in the launch queue of a device
HANDOFF: Final = 6  # a thread waits for another thread
MEETING: Final = 7  # a rank waits for other ranks in a collective
BATCH: Final = 8  # a thread waits for a batch of the data loader


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of a graph, arrays of shape (edges,). Node ``dst`` starts at least ``lag_ns`` after the end of ``src``."""

    src: IntArray
    dst: IntArray
    lag_ns: IntArray
    from_start: BoolArray  # whether the lag counts from the start of ``src`` instead of its end
    cause: ByteArray  # one of the causes above
    owner: IntArray  # row of the event that causes the edge, -1 if none
    in_order: bool = False  # whether all edges into the source of an edge come before this edge

    def __len__(self) -> int:
        return len(self.src)

    def only(self, mask: BoolArray) -> Edges:
        return replace(self.at(np.flatnonzero(mask)), in_order=self.in_order)

    def at(self, index: IntArray) -> Edges:
        arrays: dict[str, Any] = {name: getattr(self, name)[index] for name in _OF_EDGES}
        return replace(self, **arrays, in_order=False)


_OF_EDGES: Final = tuple(column.name for column in fields(Edges) if column.name != "in_order")


def edges(
    cause: int, src: IntArray, dst: IntArray, lag_ns: IntArray | int = 0, owner: IntArray | int = -1,
    from_start: bool = False,
) -> Edges:  # fmt: skip
    count = len(src)
    return Edges(
        src.astype(np.int64, copy=False), dst.astype(np.int64, copy=False),
        np.broadcast_to(np.asarray(lag_ns, np.int64), count).copy(), np.full(count, from_start),
        np.full(count, cause, np.int8), np.broadcast_to(np.asarray(owner, np.int64), count).copy(),
    )  # fmt: skip


def all_edges(parts: Sequence[Edges]) -> Edges:
    nothing = edges(CHAIN, np.empty(0, np.int64), np.empty(0, np.int64))
    arrays: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in (nothing, *parts)]) for name in _OF_EDGES}
    return Edges(**arrays)


@dataclass(frozen=True, slots=True)
class Waits:
    """Host calls that wait, arrays of shape (calls,)."""

    row: IntArray  # row of the call
    busy_ns: IntArray  # time of the call without the wait
    edges: Edges  # edges from the awaited work to the node after the call


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes as arrays of shape (nodes,), and the edges between the nodes."""

    dur_ns: IntArray  # time that the node takes once it has started
    row: IntArray  # row of the event that the time of the node belongs to, -1 if none
    lane: IntArray  # number of the thread or stream of the node; threads have the lowest numbers
    start_ns: IntArray  # recorded start; the replay uses it only for nodes without edges into them
    threads: int  # number of host threads
    edges: Edges

    def __len__(self) -> int:
        return len(self.dur_ns)

    @property
    def on_host(self) -> BoolArray:
        return self.lane < self.threads

    def with_nodes(
        self, dur_ns: IntArray, row: IntArray, lane: IntArray, start_ns: IntArray, links: Sequence[Edges]
    ) -> Graph:
        """Return the graph with more nodes and edges. The new nodes are numbered after the existing nodes."""
        return Graph(
            np.append(self.dur_ns, dur_ns), np.append(self.row, row), np.append(self.lane, lane),
            np.append(self.start_ns, start_ns), self.threads, all_edges([self.edges, *links]),
        )  # fmt: skip

    def continued(self, node: IntArray, rest: IntArray) -> Graph:
        """Return the graph with nodes cut in two. ``node[i]`` becomes the first part, which takes no time. ``rest[i]``
        is the second part, which the caller adds. Edges from the end of ``node[i]`` move to the end of ``rest[i]``."""
        ends_with, dur = np.arange(len(self)), self.dur_ns.copy()
        ends_with[node], dur[node] = rest, 0
        links = self.edges
        src = np.where(links.from_start, links.src, ends_with[links.src])
        return replace(self, dur_ns=dur, edges=replace(links, src=src, in_order=False))


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace as a graph, and the nodes of its events. The ranks of the trace share one clock in the graph."""

    trace: Trace
    graph: Graph
    first: IntArray  # node that starts when each host event starts, -1 for other events, shape (rows,)
    after: IntArray  # node that starts when each host event ends, -1 for other events, shape (rows,)
    work: IntArray  # node of each piece of device work, -1 for other events, shape (rows,)
    tied: int  # number of collectives replayed with waits for other ranks, counted once for each rank
    untied: int  # number of collectives replayed as recorded, counted once for each rank; 0 if there is one rank
    rank: IntArray  # rank of each thread and stream, shape (lanes,)
    ahead_ns: IntArray  # time by which the rank's clock is ahead of the graph's clock, shape (lanes,)
    results: dict[tuple[object, ...], tuple[tuple[object, ...], Any]] = field(default_factory=dict, repr=False)

    def once(self, purpose: str, make: Callable[[], T], *of: object) -> T:
        """Return ``make()``, which is called once for each purpose and objects ``of``. Objects are distinguished by
        identity. Arrays in the result become read-only, because several replays share them."""
        key = (purpose, *map(id, of))
        if key not in self.results:
            result: Any = make()
            for part in result if isinstance(result, tuple) else (result,):
                part.setflags(write=False)
            self.results[key] = of, result  # with the objects, so that no other object gets their ids
        return cast(T, self.results[key][1])

    def recorded_ns(self, nodes: IntArray) -> IntArray:
        """Return the recorded start of the nodes in ns on the clock of the trace, shape (len(nodes),)."""
        return self.graph.start_ns[nodes] + self.ahead_ns[self.graph.lane[nodes]]

    def hosts(self, rank: int) -> IntArray:
        return np.flatnonzero(self.graph.on_host & (self.rank[self.graph.lane] == rank))


class CyclicGraphError(PerfkitError):
    """Nodes wait for each other in a cycle, for example because a transform moved work before what it depends on.
    ``cycle`` has the edges of one cycle, each of which begins where the previous one ends."""

    def __init__(self, message: str, cycle: Edges) -> None:
        super().__init__(message)
        self.cycle = cycle


def play(graph: Graph) -> IntArray:
    """Return the start of each node in ns, shape (nodes,). A node starts as early as the edges into it allow. A node
    without such edges starts at its recorded start. Takes linear time. Raises CyclicGraphError."""
    links = graph.edges if graph.edges.in_order else graph.edges.at(_order(graph))
    start = graph.start_ns.copy()
    start[links.dst] = np.iinfo(np.int64).min
    _play(links.src, links.dst, links.lag_ns, links.from_start, graph.dur_ns, start)
    return start


def ordered(graph: Graph) -> Graph:
    """Return the graph with its edges in the order in which :func:`play` needs them. A graph that cannot be played is
    returned as it is."""
    try:
        return replace(graph, edges=replace(graph.edges.at(_order(graph)), in_order=True))
    except CyclicGraphError:
        return graph


def _order(graph: Graph) -> IntArray:
    """Return the order in which all edges into the source of an edge come before this edge. Raises CyclicGraphError."""
    order = np.empty(len(graph.edges), np.int64)
    waits_for, ready, after = (np.zeros(len(graph) + extra, np.int64) for extra in (0, 0, 1))
    by_source = np.zeros(len(graph.edges), np.int64)
    played = _sort(graph.edges.src, graph.edges.dst, waits_for, after, by_source, ready, order)
    if played < len(graph):
        text = f"{len(graph) - played} of {len(graph)} nodes of the replay wait for each other"
        raise CyclicGraphError(text, _cycle(graph.edges, waits_for > 0))
    return order


def _cycle(links: Edges, waits: BoolArray) -> Edges:
    """Return the edges of one cycle. Each node in the mask ``waits`` has an edge from another such node."""
    between = np.flatnonzero(waits[links.src] & waits[links.dst])
    into = np.full(len(waits), -1)
    into[links.dst[between]] = between
    node = int(waits.argmax())
    path: list[int] = []
    position: dict[int, int] = {}
    while node not in position:
        position[node] = len(path)
        path.append(int(into[node]))
        node = int(links.src[path[-1]])
    return links.at(np.array(path[position[node] :][::-1]))


@compiled
def _play(
    src: IntArray, dst: IntArray, lag: IntArray, from_start: BoolArray, dur: IntArray, start: Out[IntArray]
) -> None:
    for edge in range(len(src)):
        begin = start[src[edge]] + lag[edge]
        if not from_start[edge]:
            begin += dur[src[edge]]
        if begin > start[dst[edge]]:
            start[dst[edge]] = begin


@compiled
def _sort(
    src: IntArray, dst: IntArray,
    waits_for: Out[IntArray], after: Out[IntArray], by_source: Out[IntArray], ready: Out[IntArray],
    order: Out[IntArray],
) -> int:  # fmt: skip
    """Fill ``order``. Return the number of nodes that could start: fewer than all if the graph has a cycle.

    ``waits_for`` counts the edges into each node whose source has not started. The edges from node i are in
    ``by_source[after[i]:after[i + 1]]``. ``ready`` holds the nodes that can start. All arrays must be 0 at first."""
    for edge in range(len(src)):
        waits_for[dst[edge]] += 1
        after[src[edge] + 1] += 1
    for node in range(len(waits_for)):
        after[node + 1] += after[node]
    for edge in range(len(src)):  # moves each item of ``after`` to the end of its edges, which is the next item
        by_source[after[src[edge]]] = edge
        after[src[edge]] += 1
    for node in range(len(waits_for), 0, -1):
        after[node] = after[node - 1]
    after[0] = 0
    ready_count = 0
    for node in range(len(waits_for)):
        if waits_for[node] == 0:
            ready[ready_count] = node
            ready_count += 1
    done = 0
    count = 0
    while done < ready_count:
        node = ready[done]
        done += 1
        for position in range(after[node], after[node + 1]):
            edge = by_source[position]
            order[count] = edge
            count += 1
            waits_for[dst[edge]] -= 1
            if waits_for[dst[edge]] == 0:
                ready[ready_count] = dst[edge]
                ready_count += 1
    return done
