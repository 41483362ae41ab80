"""How much of each stretch of time goes to what, when every instant goes to the first thing that takes place.

Layers are disjoint interval sets in order of precedence. Exact integers: what the layers of a window get, and what none
of them covers, sum to the length of the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.algorithms.intervals import Intervals
from perfkit_core.runtime.compile import compiled


def exclusive_ns(layers: Sequence[Intervals], starts: IntArray, ends: IntArray) -> IntArray:
    """Time of each window [start, end) that goes to each layer, then to none; shape (windows, layers + 1).

    Windows may overlap. One sort over all edges, whatever the number of windows.
    """
    edges, owner = _owners(layers, np.concatenate([starts, ends]))
    width = np.diff(edges)
    result = np.empty((len(starts), len(layers) + 1), np.int64)
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    for index in range(len(layers) + 1):
        passed = np.append(0, np.cumsum(np.where(owner == index, width, 0)))
        result[:, index] = passed[last] - passed[first]
    return result


def covered_ns(layer: Intervals, starts: IntArray, ends: IntArray) -> IntArray:
    """Time of each window [start, end) that a disjoint set covers, shape (windows,)."""
    first, last = layer
    found = np.empty(len(starts), np.int64)
    _cover(first, last, np.append(0, np.cumsum(last - first)), starts, ends, found)
    return found


@compiled(steps=5)
def _cover(first, last, passed, starts, ends, found):  # type: ignore[no-untyped-def]
    """``passed``: what the set covers before each of its intervals."""
    for i in range(len(starts)):
        found[i] = _until(first, last, passed, ends[i]) - _until(first, last, passed, starts[i])


@compiled
def _until(first, last, passed, time):  # type: ignore[no-untyped-def]
    """What a disjoint set covers before a time."""
    begun = np.searchsorted(first, time, side="right")
    return passed[begun] - max(last[begun - 1] - time, 0) if begun else 0


def _owners(layers: Sequence[Intervals], marks: IntArray) -> tuple[IntArray, IntArray]:
    """All edges in order, and between each two of them the first layer that covers it (their number: none does)."""
    edges, changes = [marks], [np.zeros(len(marks), np.int64)]
    for index, (starts, ends) in enumerate(layers):
        edges += [starts, ends]
        changes += [np.full(len(starts), 1 << index), np.full(len(ends), -(1 << index))]
    every = np.concatenate(edges)
    order = np.argsort(every, kind="stable")
    covering = np.cumsum(np.concatenate(changes)[order])[:-1]
    return every[order], _lowest_bit(len(layers))[covering]


def _lowest_bit(bits: int) -> IntArray:
    """Position of the lowest bit that is set in each number below 2 ** bits; ``bits`` for 0."""
    lowest = np.full(1 << bits, bits, np.int64)
    for bit in reversed(range(bits)):
        lowest[np.arange(1 << bits) & (1 << bit) != 0] = bit
    return lowest
