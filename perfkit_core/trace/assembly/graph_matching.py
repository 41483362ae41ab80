"""Matching of the nodes of a replayed graph with the launches of captured graphs.

- If the node names equal the names that the launches recorded, in the same order, nodes and launches match one by one.
  Graphs with several streams may run in another order. Then the n-th node of a name matches the n-th launch of this
  name. If the numbers differ for any name, a longest common subsequence matches.
- If the launches have no names (CUDA), nodes and launches match in order, and only if their kinds are equal.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.trace import Trace

_LEAST_COMMON: Final = 0.5
"""At least this share of the nodes must match a captured graph. Otherwise the replay is of another graph."""
_MOST_CELLS: Final = 1 << 31
"""Limit for the product of both lengths of a longest common subsequence, which takes one bit of memory per cell (256
MiB). Of longer sequences, only the equal beginning and the equal end match."""


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """A captured graph. ``launches`` are rows of ``trace``, with a kind and a name (None: not recorded) for each."""

    trace: Trace
    begin: int  # row of the call that begins the capture
    launches: IntArray
    kinds: tuple[str, ...]
    names: tuple[str | None, ...]
    batch: int | None  # batch size for which the graph was captured


Labels = tuple[str, ...]
"""The texts of launches or nodes that are equal if a launch and a node match."""


class Graphs:
    """Captured graphs, among which the graph of a replay is looked up."""

    def __init__(self, graphs: Sequence[CapturedGraph]) -> None:
        self._graphs = list(graphs)
        self._preferred = functools.cache(self._by_batch)
        self._labels: list[Labels] = []
        self._unnamed: dict[Labels, list[int]] = defaultdict(list)
        counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, graph in enumerate(graphs):
            pairs = zip(graph.kinds, graph.names, strict=True)
            named = not any(name is None and kind == schema.KERNEL for kind, name in pairs)
            labels = _labels(graph.kinds, graph.names, named)
            self._labels.append(labels)
            if not named:
                self._unnamed[labels].append(number)
            for label, count in Counter(labels).items() if named else ():
                counts[label].append((number, count))
        self._counts = {label: np.array(pairs, np.int64).T for label, pairs in counts.items()}

    def best(
        self, kinds: Sequence[str], names: Sequence[str], batch: int | None
    ) -> tuple[CapturedGraph, IntArray] | None:
        """Return the captured graph that matches the nodes best, and for each node its launch (an index, -1: none). Of
        equally good graphs, return the one with the smallest batch size that the step fits in, else the first."""
        unnamed, nodes = _labels(kinds, names, named=False), _labels(kinds, names, named=True)
        most = np.zeros(len(self._graphs), np.int64)  # how many nodes each graph can match
        for label, number in Counter(nodes).items():
            if label in self._counts:
                graph, count = self._counts[label]
                most[graph] += np.minimum(count, number)
        equal = self._unnamed.get(unnamed, [])
        most[equal] = len(nodes)
        best: tuple[CapturedGraph, IntArray] | None = None
        least, order = max(1, math.ceil(_LEAST_COMMON * len(nodes))), self._preferred(batch)
        for at in order[most[order] >= least].tolist():
            if most[at] < least:
                continue
            match = np.arange(len(nodes)) if at in equal else _matched(self._labels[at], nodes)
            common = int(np.count_nonzero(match != NO_ROW))
            if common >= least:
                best, least = (self._graphs[at], match), common + 1  # only a better match replaces a preferred graph
            if common == len(nodes):
                break
        return best

    def _by_batch(self, batch: int | None) -> IntArray:
        """Return the numbers of the graphs in the order of preference for a batch size."""

        def padded(number: int) -> float:
            size = self._graphs[number].batch
            return size if size is not None and batch is not None and size >= batch else float("inf")

        return np.array(sorted(range(len(self._graphs)), key=padded), np.int64)


def _labels(kinds: Sequence[str], names: Sequence[str | None], named: bool) -> Labels:
    if not named:
        return tuple(kinds)
    # the calls for memcpy and memset do not record the names of these nodes
    return tuple(f"{kind} {name}" if kind == schema.KERNEL else kind for kind, name in zip(kinds, names, strict=True))


def _matched(calls: Labels, nodes: Labels) -> IntArray:
    """Return the index of the launch of each node, -1 if none."""
    if calls == nodes:
        return np.arange(len(nodes))
    places: dict[str, list[int]] = defaultdict(list)
    for number, label in reversed(list(enumerate(calls))):
        places[label].append(number)
    if any(len(places[label]) != number for label, number in Counter(nodes).items()):
        return common_subsequence(calls, nodes)
    return np.array([places[label].pop() for label in nodes], np.int64)


def common_subsequence(calls: Labels, nodes: Labels) -> IntArray:
    """Return the index of each node's call in a longest common subsequence, -1 for nodes outside of it."""
    match = np.full(len(nodes), NO_ROW, np.int64)
    begin = _equal(calls, nodes)
    end = _equal(calls[: begin - 1 if begin else None : -1], nodes[: begin - 1 if begin else None : -1])
    match[:begin] = np.arange(begin)
    match[len(nodes) - end :] = np.arange(len(calls) - end, len(calls))
    inner = match[begin : len(nodes) - end]
    middle = _subsequence(calls[begin : len(calls) - end], nodes[begin : len(nodes) - end])
    inner[:] = np.where(middle == NO_ROW, NO_ROW, middle + begin)
    return match


def _equal(a: Labels, b: Labels) -> int:
    """Return how many of the first items are equal."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((number for number, (label, other) in pairs if label != other), min(len(a), len(b)))


def _subsequence(calls: Labels, nodes: Labels) -> IntArray:
    """The bit-parallel algorithm of Hyyrö (Bit-parallel LCS-length computation revisited, 2004): one integer has a bit
    for each call. After n nodes, bit i is 0 if the subsequence of the first n nodes grows with call i."""
    match = np.full(len(nodes), NO_ROW, np.int64)
    if len(calls) * len(nodes) > _MOST_CELLS or not calls:
        return match
    places: dict[str, int] = defaultdict(int)
    for number, label in enumerate(calls):
        places[label] |= 1 << number
    every, size = (1 << len(calls)) - 1, len(calls) // 8 + 1
    bits, rows = every, [every.to_bytes(size, "little")]
    for label in nodes:
        equal = bits & places.get(label, 0)
        bits = ((bits + equal) | (bits - equal)) & every
        rows.append(bits.to_bytes(size, "little"))
    call, node = len(calls) - 1, len(nodes)
    while node and call >= 0:  # follow the choices back from the end
        if rows[node][call >> 3] >> (call & 7) & 1:  # the subsequence does not need this call
            call -= 1
            continue
        node -= 1
        if rows[node][call >> 3] >> (call & 7) & 1:  # it grows with this call only since this node
            match[node] = call
            call -= 1
    return match
