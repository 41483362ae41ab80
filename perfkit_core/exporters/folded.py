"""Folded stacks for flame graph tools and speedscope. Each distinct stack is a line ``thread;outer;inner weight``.

The weight of a stack does not include deeper stacks. Stacks with weight 0 are left out. The format cannot escape
characters. Therefore ``;`` in a name is replaced by ``:``, and a line break by a space. Very deep stacks are cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray
from perfkit_core.base.algorithms.trees import Tree
from perfkit_core.exporters import CPU
from perfkit_core.exporters.stacks import LACKING, call_paths, cut_to, default, weigh
from perfkit_core.plugins.contracts import ExportOptions
from perfkit_core.trace.model.trace import Trace

_PIECE: Final = 1 << 20
_MAX_CHARACTERS: Final = 1 << 29
"""Largest size of all stacks together. Deep stacks are cut to stay below it."""
_UNSAFE: Final = str.maketrans({";": ":", "\n": " ", "\r": " "})


def write(trace: Trace, file: BinaryIO, options: ExportOptions) -> str:
    """Write the stacks with the weight ``options.weight``, in ns, bytes or calls. Return the reason if there are no
    stacks. Return a note if device time replaces missing host time, or if stacks were cut. Otherwise return ""."""
    weight = options.weight or default(trace)
    tree, labels = call_paths(trace)
    texts = [";".join(frame.translate(_UNSAFE) for frame in label) for label in labels]
    sizes, values = np.array([len(text) + 1 for text in texts], np.int64)[tree.key], weigh(trace, weight)
    tree, cut = cut_to(_MAX_CHARACTERS, tree, sizes, tree.exclusive(values) != 0)
    empty = True
    for piece in _pieces(_lines(tree, texts, tree.exclusive(values))):
        file.write(piece.encode())
        empty = False
    if empty:
        return LACKING[weight]
    replaced = "" if options.weight or weight == CPU else f"{LACKING[CPU]}: the weights are device time"
    return "; ".join(filter(None, (replaced, cut)))


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    buffered, size = [], 0
    for line in lines:
        buffered.append(line)
        size += len(line)
        if size >= _PIECE:
            yield "".join(buffered)
            buffered, size = [], 0
    if buffered:
        yield "".join(buffered)


def _lines(tree: Tree, texts: list[str], weights: IntArray) -> Iterator[str]:
    parent, label, weight = tree.parent, tree.key.tolist(), weights.tolist()
    # For each node, ``child_of`` is its first child, and ``next_of`` is its next sibling.
    children = np.flatnonzero(parent >= 0)
    order = children[np.argsort(parent[children], kind="stable")]
    same = parent[order][1:] == parent[order][:-1]
    first_child, sibling = np.full(len(parent), -1, np.int64), np.full(len(parent), -1, np.int64)
    first_child[parent[order][::-1]] = order[::-1]
    sibling[order[:-1][same]] = order[1:][same]
    child_of, next_of = first_child.tolist(), sibling.tolist()
    open_nodes = [(int(root), "") for root in np.flatnonzero(parent == NO_ROW)[::-1]]
    while open_nodes:
        node, above = open_nodes.pop()
        text = above + texts[label[node]]
        if weight[node]:
            yield f"{text} {weight[node]}\n"
        child = child_of[node]
        while child >= 0:
            open_nodes.append((child, text + ";"))
            child = next_of[child]
