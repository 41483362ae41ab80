"""Merging many events into one tree: events whose path of keys from the root is the same are one node.

Nodes are numbered so that a parent comes before its children (parent < node), as the algorithms of ``nesting`` need it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms import groupby, nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.runtime.compile import compiled


@dataclass(frozen=True, slots=True)
class Tree:
    """``parent`` (-1: root) and ``key`` of each node, shape (nodes,); ``node`` of each event (-1: none)."""

    parent: IntArray
    key: IntArray
    node: IntArray

    def __len__(self) -> int:
        return len(self.parent)

    def depth(self) -> IntArray:
        """Distance of each node from its root, shape (nodes,)."""
        return nesting.sum_down(self.parent, (self.parent != NO_ROW).astype(np.int64))

    def own(self, values: npt.NDArray[Any]) -> IntArray:
        """Sum over the events of each node of ``values`` (shape (rows,)), shape (nodes,)."""
        return groupby.sums(self.node, len(self), values)

    def inclusive(self, values: IntArray) -> IntArray:
        """As :meth:`own`, with everything below each node."""
        return nesting.sum_up(self.parent, self.own(values))


def merge(parent: IntArray, key: IntArray, member: BoolArray) -> Tree:
    """The tree of the events where ``member`` is true, by the path of their ``key`` ≥ 0; what lies between two of them
    is passed over. Needs parent < row. One pass over the events; nodes of less depth have lower numbers."""
    node = np.empty(len(parent), np.int64)
    above, keys = _found(parent, key, member, node)
    number, tree = _by_depth(above, keys)
    _renumbered(node, member, number)
    return Tree(tree.parent, tree.key, node)


def _by_depth(above: IntArray, key: IntArray) -> tuple[IntArray, Tree]:
    """Nodes in the order of their depth, then of the node above, then of their key: number of each, and their tree."""
    level = nesting.sum_down(above, (above != NO_ROW).astype(np.int64))
    number = np.full(len(above) + 1, NO_ROW, np.int64)
    count = 0
    for at in _by_level(level):
        at = at[np.lexsort((key[at], number[above[at]]))]
        number[at] = np.arange(count, count + len(at))
        count += len(at)
    order = np.argsort(number[:-1])
    return number, Tree(number[above[order]], key[order], number[:-1])


@compiled(steps=5)
def _found(parent, key, member, node):  # type: ignore[no-untyped-def]
    """Sets ``node`` of each event to the first number that its path got, of others to that of the member above them.
    Returns the node above each node, and its key. The paths are looked up in a table with open addressing."""
    slots = np.full(1024, -1, np.int64)
    above, keys, count = np.empty(512, np.int64), np.empty(512, np.int64), 0
    for i in range(len(parent)):
        up = node[parent[i]] if parent[i] >= 0 else -1
        if not member[i]:
            node[i] = up
            continue
        slot = _slot(up, key[i], len(slots))
        while slots[slot] >= 0 and (above[slots[slot]] != up or keys[slots[slot]] != key[i]):
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] < 0:
            if count == len(above):
                above, keys = np.concatenate((above, above)), np.concatenate((keys, keys))
                slots = _spread(above, keys, count)
                slot = _slot(up, key[i], len(slots))
                while slots[slot] >= 0:
                    slot = (slot + 1) & (len(slots) - 1)
            slots[slot], above[count], keys[count] = count, up, key[i]
            count += 1
        node[i] = slots[slot]
    return above[:count].copy(), keys[:count].copy()


@compiled
def _slot(above, key, size):  # type: ignore[no-untyped-def]
    """Where to look first: bits of both numbers well mixed, as they count up."""
    mixed = (np.uint64(above + 1) * np.uint64(0x9E3779B97F4A7C15)) ^ (np.uint64(key) * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> np.uint64(20)) & np.uint64(size - 1))


@compiled
def _spread(above, keys, count):  # type: ignore[no-untyped-def]
    """The table of ``count`` nodes, twice as large as the nodes that there is room for."""
    slots = np.full(2 * len(above), -1, np.int64)
    for n in range(count):
        slot = _slot(above[n], keys[n], len(slots))
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = n
    return slots


@compiled
def _renumbered(node, member, number):  # type: ignore[no-untyped-def]
    for i in range(len(node)):
        node[i] = number[node[i]] if member[i] else -1


def preorder(parent: IntArray, weight: IntArray) -> IntArray:
    """Nodes in the order of a printed tree, the heaviest sibling first, shape (nodes,). Needs parent < node."""
    order = np.lexsort((np.arange(len(parent)), -weight, parent))
    size = nesting.sum_up(parent, np.ones(len(parent), np.int64))
    before = np.cumsum(size[order]) - size[order]
    first = np.append(True, parent[order][1:] != parent[order][:-1]) if len(order) else np.zeros(0, np.bool_)
    offset = np.zeros(len(parent), np.int64)
    offset[order] = before - np.maximum.accumulate(np.where(first, before, 0)) if len(order) else before
    position = nesting.sum_down(parent, offset + (parent != NO_ROW))
    return np.argsort(position, kind="stable")


def heaviest_first(names: Iterable[object], *weights: IntArray) -> IntArray:
    """A weight of each node for :func:`preorder`: by the first of ``weights``, then the next, then the name, in the
    order of the alphabet, so that a tree reads alike whatever its nodes are numbered by."""
    place = np.unique(np.array([str(name) for name in names], object), return_inverse=True)[1]
    rank = np.empty(len(place), np.int64)
    rank[np.lexsort((-place, *weights[::-1]))] = np.arange(len(place))
    return rank


def _by_level(level: IntArray) -> list[IntArray]:
    order = groupby.stable_order(level, int(level.max(initial=0)) + 1)
    return np.split(order, np.flatnonzero(np.diff(level[order])) + 1) if len(order) else []
