"""Trees of merged events. Events with equal paths of keys from the root are one node. Parents precede children."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of merged events."""

    parent: IntArray  # parent of each node, -1 for roots, shape (nodes,)
    key: IntArray  # key of each node, shape (nodes,)
    node: IntArray  # node of each event, -1 if none, shape (events,)

    def __len__(self) -> int:
        return len(self.parent)

    def depth(self) -> IntArray:
        return nesting.sum_down(self.parent, (self.parent != NO_ROW).astype(np.int64))

    def exclusive(self, values: npt.NDArray[Any]) -> IntArray:
        """Return the sum of the values of each node's events, shape (nodes,). ``values`` has shape (events,)."""
        return groupby.sums(self.node, len(self), values)

    def inclusive(self, values: IntArray) -> IntArray:
        """Return the sum of the values of each node's events and of all its descendants' events, shape (nodes,)."""
        return nesting.sum_up(self.parent, self.exclusive(values))


def merge(parent: IntArray, key: IntArray, member: BoolArray) -> Tree:
    """Return the tree of the events in the mask ``member``. Events become one node if the keys on their paths from the
    root are equal. Events outside the mask are skipped on these paths. Keys must be ≥ 0, and every parent must precede
    its children. The numbers of the nodes do not depend on the order of the events."""
    node = np.empty(len(parent), np.int64)
    above, keys = _merged_paths(parent, key, member, node)
    level = nesting.sum_down(above, (above != NO_ROW).astype(np.int64))
    by_level = groupby.stable_order(level, int(level.max(initial=0)) + 1)
    number = np.full(len(above) + 1, NO_ROW, np.int64)  # the last item, number[NO_ROW], remains NO_ROW
    count = 0
    for nodes in np.split(by_level, np.flatnonzero(np.diff(level[by_level])) + 1):
        nodes = nodes[np.lexsort((keys[nodes], number[above[nodes]]))]
        number[nodes] = np.arange(count, count + len(nodes))
        count += len(nodes)
    order = np.argsort(number[:-1])
    node[~member] = NO_ROW
    return Tree(number[above[order]], keys[order], number[node])


_INITIAL_PATHS: Final = 512
"""Number of distinct paths for which there is room at first, a power of two."""


def _merged_paths(parent: IntArray, key: IntArray, member: BoolArray, node: IntArray) -> tuple[IntArray, IntArray]:
    """Number the distinct paths of keys (see :func:`merge`). Return two arrays with one item per path: the number of
    the path above it, and its last key. Set ``node[i]`` to the number of the path of event i. An event outside the mask
    ``member`` has the path of the nearest event above it that is in the mask."""
    above, keys = np.empty(_INITIAL_PATHS, np.int64), np.empty(_INITIAL_PATHS, np.int64)
    at, count = 0, 0
    while True:
        slots = np.full(2 * len(above), -1, np.int64)
        _spread(above[:count], keys[:count], slots)
        at, count = _merge_paths(at, count, parent, key, member, slots, above, keys, node)
        if at == len(parent):
            return above[:count].copy(), keys[:count].copy()
        above, keys = np.concatenate((above, above)), np.concatenate((keys, keys))


@compiled
def _merge_paths(
    begin: int, count: int, parent: IntArray, key: IntArray, member: BoolArray,
    slots: Out[IntArray], above: Out[IntArray], keys: Out[IntArray], node: Out[IntArray],
) -> tuple[int, int]:  # fmt: skip
    """Read the events from ``begin`` on. Return the event for whose path there is no room, and the number of paths."""
    for i in range(begin, len(parent)):
        up = node[parent[i]] if parent[i] >= 0 else -1
        if not member[i]:
            node[i] = up
            continue
        slot = _slot(up, key[i], len(slots))
        while slots[slot] >= 0 and (above[slots[slot]] != up or keys[slots[slot]] != key[i]):
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] < 0:
            if count == len(above):
                return i, count
            slots[slot], above[count], keys[count] = count, up, key[i]
            count += 1
        node[i] = slots[slot]
    return len(parent), count


@compiled
def _spread(above: IntArray, keys: IntArray, slots: Out[IntArray]) -> None:
    """Enter paths into an empty hash table."""
    for n in range(len(above)):
        slot = _slot(above[n], keys[n], len(slots))
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = n


@compiled
def _slot(above: int, key: int, size: int) -> int:
    """Return the slot at which a search of the hash table begins. Bits are mixed, as ids and keys are consecutive."""
    mixed = (np.uint64(above + 1) * np.uint64(0x9E3779B97F4A7C15)) ^ (np.uint64(key) * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return int(np.int64((mixed >> np.uint64(20)) & np.uint64(size - 1)))


def parents(depth: IntArray) -> IntArray:
    """Return the row of each row's parent (-1 for roots), shape (rows,). ``depth`` must be in preorder."""
    row = np.arange(len(depth))
    key = depth * len(depth) + row  # sorts by depth, then by row
    order = np.argsort(key)
    above = np.searchsorted(key[order], key - len(depth)) - 1  # the last earlier row of the depth above
    return np.where(depth > 0, order[above], NO_ROW) if len(depth) else row


def preorder(parent: IntArray, weight: IntArray) -> IntArray:
    """Return the nodes in preorder, with the heaviest sibling first. Every parent must precede its children."""
    order = np.lexsort((np.arange(len(parent)), -weight, parent))
    size = nesting.sum_up(parent, np.ones(len(parent), np.int64))
    before = np.cumsum(size[order]) - size[order]
    first = np.append(True, parent[order][1:] != parent[order][:-1]) if len(order) else np.zeros(0, np.bool_)
    offset = np.zeros(len(parent), np.int64)
    offset[order] = before - np.maximum.accumulate(np.where(first, before, 0)) if len(order) else before
    position = nesting.sum_down(parent, offset + (parent != NO_ROW))
    return np.argsort(position, kind="stable")


def heaviest_first(names: Iterable[object], *weights: IntArray) -> IntArray:
    """Return a sort key for each node, for the argument ``weight`` of :func:`preorder`. The heaviest node has the
    largest key. Nodes are compared by ``weights[0]``; ties are broken by ``weights[1]`` and so on, finally by name."""
    name_order = np.unique(np.array([str(name) for name in names], object), return_inverse=True)[1]
    rank = np.empty(len(name_order), np.int64)
    rank[np.lexsort((-name_order, *weights[::-1]))] = np.arange(len(name_order))
    return rank
