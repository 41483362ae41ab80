"""The layers of a backward pass from the marks in it: a mark names the layer of its node, and may list further nodes.

Nodes are taken in turn. A node without a mark belongs to the call that still lists one of its name; of several to the
one whose backward went on longest ago, as an engine goes breadth first; of those that began together to the inner one,
whose mark comes first. What nobody lists follows the node before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.compiling import ENOUGH_CELLS, compiled
from perfkit_core.layers import module_labels
from perfkit_core.trace import IntArray, Trace

UNKNOWN: Final = -2
"""Nothing tells the layer of a node."""
NONE: Final = -1
"""A node is known to be of no layer."""


def by_marks(
    trace: Trace, mark: IntArray, rows: IntArray, around: IntArray, above: IntArray, known: IntArray
) -> IntArray:
    """Path number of each node (UNKNOWN: none told it), shape (len(rows),): ``rows`` of nodes as an engine took them,
    with what is ``above`` each and is ``known`` of it. ``mark`` (path number) and ``around`` (node) of all events."""
    names = trace.codes("name")
    marks = np.flatnonzero((mark >= 0) & (around >= 0))
    position = np.full(len(trace), -1, np.int64)
    position[rows] = np.arange(len(rows))
    owner = position[around[marks]]
    order = np.lexsort((marks, owner))
    marks, owner = marks[order], owner[order]
    first = np.searchsorted(owner, np.arange(len(rows) + 1))
    listed, start, wanted = _listed(names.values)
    group = np.stack([trace.ints(name)[rows] for name in ("pid", "tid", "step")] + [above])
    fresh = np.append(True, (group[:, 1:] != group[:, :-1]).any(axis=0))
    own = wanted[names.codes[rows]]
    found: IntArray = _walk(fresh, first, mark[marks], names.codes[marks], listed, start, own, known)
    return found


def _listed(values: list[str]) -> tuple[IntArray, IntArray, IntArray]:
    """Numbers of the node names that each distinct event name lists, as one array and where each list starts; and the
    number of the node name that each event name has itself (-1: none)."""
    lists = [label.nodes if (label := module_labels.decode(value)) else () for value in values]
    number = {node: code for code, node in enumerate(dict.fromkeys(node for nodes in lists for node in nodes))}
    flat = np.array([number[node] for nodes in lists for node in nodes], np.int64)
    start = np.concatenate([[0], np.cumsum([len(nodes) for nodes in lists])]).astype(np.int64)
    wanted = np.array([number.get(value, number.get(value.partition("_")[2], -1)) for value in values], np.int64)
    return flat, start, wanted


@compiled(steps=ENOUGH_CELLS)  # a mark that never comes is waited for at every node
def _walk(fresh, first, mark, name, listed, start, wanted, known):  # type: ignore[no-untyped-def]
    """One pass over the nodes. Open calls: path, what they still list and how much that is, and when their backward
    last went on; those before ``low`` list nothing more."""
    count = len(wanted)
    found = np.empty(count, np.int64)
    path = np.empty(len(mark), np.int64)
    begin = np.empty(len(mark) + 1, np.int64)
    turn = np.empty(len(mark), np.int64)
    left = np.zeros(len(mark), np.int64)
    low = high = 0
    total = 0
    for m in range(len(mark)):
        total += start[name[m] + 1] - start[name[m]]
    rest = np.full(total, -1, np.int64)
    begin[0] = 0
    for i in range(count):
        if fresh[i]:
            low = high
        while low < high and left[low] == 0:
            low += 1
        mine = -1
        for m in range(first[i], first[i + 1]):
            at = begin[high]
            for k in range(start[name[m]], start[name[m] + 1]):
                rest[at] = listed[k]
                at += 1
            path[high], turn[high], begin[high + 1], left[high] = mark[m], i, at, at - begin[high]
            if mine < 0:
                mine = high
                for k in range(begin[high], at):  # the node that holds the mark is one of those listed
                    if rest[k] == wanted[i]:
                        rest[k] = -1
                        left[high] -= 1
                        break
            high += 1
        if mine >= 0:
            found[i] = path[mine]
        elif known[i] != UNKNOWN:
            found[i] = known[i]
        else:
            best, slot = _longest_waiting(low, high if wanted[i] >= 0 else low, turn, begin, rest, wanted[i])
            if best >= 0:
                rest[slot] = -1
                left[best] -= 1
                turn[best] = i
                found[i] = path[best]
            else:
                found[i] = UNKNOWN if fresh[i] else found[i - 1]
    return found


@compiled
def _longest_waiting(low, high, turn, begin, rest, node):  # type: ignore[no-untyped-def]
    """Of the open calls that still list a node of this name the one that waited longest, and where it lists it."""
    best, slot = -1, -1
    for c in range(low, high):
        if best >= 0 and turn[c] >= turn[best]:
            continue
        for k in range(begin[c], begin[c + 1]):
            if rest[k] == node:
                best, slot = c, k
                break
    return best, slot
