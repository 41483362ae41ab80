"""Merging many events into one tree: events whose path of keys from the root is the same are one node.

Nodes are numbered so that a parent comes before its children (parent < node), as the algorithms of ``nesting`` need it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfkit_core import grouped, nesting
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import BoolArray, IntArray


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

    def own(self, values: IntArray) -> IntArray:
        """Sum over the events of each node of ``values`` (shape (rows,)), shape (nodes,)."""
        total = np.zeros(len(self), np.int64)
        counted = self.node != NO_ROW
        np.add.at(total, self.node[counted], values[counted])
        return total

    def inclusive(self, values: IntArray) -> IntArray:
        """As :meth:`own`, with everything below each node."""
        return nesting.sum_up(self.parent, self.own(values))


def merge(parent: IntArray, key: IntArray, member: BoolArray) -> Tree:
    """The tree of the events where ``member`` is true, by the path of their ``key`` ≥ 0; what lies between two of them
    is passed over. Needs parent < row; one pass for each depth, all events of it at once."""
    rows = np.flatnonzero(member)
    nearest = np.append(nesting.nearest_on_path(parent, member), NO_ROW)
    position = np.full(len(parent) + 1, NO_ROW, np.int64)
    position[rows] = np.arange(len(rows))
    above = position[nearest[parent[rows]]]
    level = nesting.sum_down(above, (above != NO_ROW).astype(np.int64))
    width = int(key[rows].max(initial=0)) + 1
    node = np.full(len(rows) + 1, NO_ROW, np.int64)
    parents, keys, count = [], [], 0
    for at in _by_level(level):
        path = (node[above[at]] + 1) * width + key[rows[at]]
        distinct, inverse = grouped.ranked(path, (count + 1) * width)
        node[at] = count + inverse
        parents.append(distinct // width - 1)
        keys.append(distinct % width)
        count += len(distinct)
    spread = np.full(len(parent), NO_ROW, np.int64)
    spread[rows] = node[:-1]
    return Tree(_joined(parents), _joined(keys), spread)


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


def _by_level(level: IntArray) -> list[IntArray]:
    order = grouped.stable_order(level, int(level.max(initial=0)) + 1)
    return np.split(order, np.flatnonzero(np.diff(level[order])) + 1) if len(order) else []


def _joined(parts: list[IntArray]) -> IntArray:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
