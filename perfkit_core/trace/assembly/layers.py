"""Assignment of events to the layers of the model.

A call of a layer is a span. A span of ``annotate`` has the full path in its label (``layers.0.attention``). Spans of
the framework have only the last part; the path is joined from the enclosing calls (``ResNet_0/Sequential_1/Conv2d_3``).

- A host event belongs to the nearest enclosing call.
- A backward node, and each event in it, belongs to the layer whose forward pass created the node.
- Device work belongs to the layer of its launch.

A node is an operator that its adapter declared as backward, or an operator directly inside a recorded backward span.
Marks are events of ``annotate`` at the start of a layer's backward pass. A mark may list the nodes that the call
of the layer created in the forward pass. The layer of a node is the first of these layers that is known:

1. the layer of the first mark in the node
2. the layer of the forward operator with the same sequence number
3. the layer of a call whose mark lists the node's name
4. the layer of the previous node, for example for gradient accumulation, which no mark lists

In case 3, several calls may have marks that list the node's name. Autograd engines take turns between these calls: they
run one node of each call, then the next node of each call. So the node belongs to the call that has waited
longest since its last node. In a tie, the node belongs to the inner call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms import nesting, trees
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, Int32Array, IntArray, texts
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.trace.assembly.draft import LAYER
from perfkit_core.trace.assembly.labels import parse_module_label
from perfkit_core.trace.model.schema import ANNOTATION, BACKWARD, FORWARD, OPERATOR_KINDS, OPTIMIZER
from perfkit_core.trace.model.trace import Trace

CALL_SEPARATOR: Final = "/"
LABEL_SEPARATOR: Final = "."
UNKNOWN: Final = -2
"""Layer number of a backward node whose layer is not known yet."""
NONE: Final = -1
"""Layer number of a backward node that belongs to no layer."""
_NUMBERED: Final = re.compile(r"_\d+$")
"""Matches a path part that names a single layer, such as ``Conv2d_3``. A class name has no number."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of layers. A layer is an index in ``paths``, or -1 for none."""

    paths: list[str]
    path: IntArray  # for each event, the layer whose call the event spans
    mark: IntArray  # for each event, the layer whose backward pass the event marks


def assign(trace: Trace) -> pa.ChunkedArray:
    """Return the column ``module`` as a dictionary array, shape (rows,). Without calls of layers, return the recorded
    column. ``trace`` must have the recorded phases. It may have a column ``layer``."""
    calls = labelled(trace)
    if not calls.paths and trace.has_values(LAYER):
        calls = _nested_calls(trace)
    if not calls.paths:
        return trace.column("module")
    layer = np.where(calls.path >= 0, calls.path, calls.mark)
    layer = np.where(layer >= 0, layer, _assign_backward(trace, calls.path, calls.mark))
    module = nesting.last_on_path(trace.ints("parent"), layer)
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    module[launched] = module[launched_by[launched]]
    return texts(module.astype(np.int32), calls.paths)


def labelled(trace: Trace) -> Calls:
    """Return the calls that ``annotate`` labelled. The path of an unnamed model is its class name."""
    names = trace.codes("name")
    labels = {code: label for code, name in enumerate(names.values) if (label := parse_module_label(name))}
    if not labels:
        return Calls([], _no_numbers(trace), _no_numbers(trace))
    paths = list(dict.fromkeys(label.module for label in labels.values()))
    position = {path: number for number, path in enumerate(paths)}
    spans, marks = np.full((2, len(names.values)), -1, np.int64)
    for code, label in labels.items():
        (marks if label.backward else spans)[code] = position[label.module]
    host = trace.host & trace.rows("kind", ANNOTATION)
    return Calls(paths, np.where(host, names.lookup(spans, -1), -1), np.where(host, names.lookup(marks, -1), -1))


def _no_numbers(trace: Trace) -> IntArray:
    return np.broadcast_to(np.int64(-1), len(trace))


def _nested_calls(trace: Trace) -> Calls:
    layer = trace.codes(LAYER)
    tree = trees.merge(trace.ints("parent"), layer.codes.astype(np.int64), trace.host & (layer.codes >= 0))
    parent, parts = tree.parent.tolist(), [layer.values[key] for key in tree.key.tolist()]
    below: dict[str, list[int]] = {}
    for node, above in enumerate(parent):
        if above != NO_ROW and _NUMBERED.search(parts[node]):
            below.setdefault(parts[node], []).append(node)
    # Checkpointing calls layers again in the backward pass, where no other layer encloses them. If a single path
    # ends with the name of such a layer (for example ``Conv2d_3``), the call belongs to this path.
    plain = _joined(parent, parts, {})
    fixed_paths = {
        node: plain[below[parts[node]][0]]
        for node, above in enumerate(parent)
        if above == NO_ROW and len(below.get(parts[node], ())) == 1
    }
    path_of_node = _joined(parent, parts, fixed_paths)
    paths = list(dict.fromkeys(path_of_node))
    position = {path: number for number, path in enumerate(paths)}
    number = np.array([*(position[path] for path in path_of_node), -1], np.int64)
    return Calls(paths, number[tree.node], _no_numbers(trace))


def _joined(parent: list[int], parts: list[str], fixed_paths: dict[int, str]) -> list[str]:
    paths: list[str] = []
    for node, above in enumerate(parent):
        path = parts[node] if above == NO_ROW else paths[above] + CALL_SEPARATOR + parts[node]
        paths.append(fixed_paths.get(node, path))
    return paths


def _assign_backward(trace: Trace, path: IntArray, mark: IntArray) -> IntArray:
    """Return the layer of each backward node, and NONE for all other events, shape (rows,)."""
    if not (mark >= 0).any() and not trace.has_values("sequence"):  # nothing links a node to a forward pass
        return np.broadcast_to(np.int64(NONE), len(trace))
    parent = trace.ints("parent")
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    span = trace.host & trace.rows("kind", BACKWARD)
    stops = operator | span | trace.rows("kind", FORWARD, OPTIMIZER)
    inside = np.append(span, False)[nesting.nearest_above(parent, stops)]
    node = operator & (trace.rows("phase", BACKWARD) | inside)
    rows = np.flatnonzero(node)
    result = np.full(len(trace), NONE, np.int64)
    if not len(rows):
        return result
    around = nesting.nearest_on_path(parent, node)
    by_number = _by_number(trace, path, rows, around)
    above = nesting.nearest_above(parent, node | span)[rows]
    # sort nodes by process, thread, step and enclosing event, then in the order in which the autograd engine ran them
    order = np.lexsort((rows, above, trace.ints("step")[rows], trace.ints("tid")[rows], trace.ints("pid")[rows]))
    numbers = _by_marks(trace, mark, rows[order], around, above[order], by_number[order])
    result[rows[order]] = np.maximum(numbers, NONE)
    return result


def _by_number(trace: Trace, path: IntArray, rows: IntArray, around: IntArray) -> IntArray:
    """Return the layer of each backward node. It is the layer of the last forward operator that precedes the node and
    has the node's sequence number. Without such an operator, the layer is UNKNOWN."""
    sequence, parent = trace.ints("sequence"), trace.ints("parent")
    # The sequence number of a node is recorded on the node itself, or on an event inside it. Use the first number.
    inner = np.flatnonzero((sequence >= 0) & (around >= 0))
    first = np.full(len(trace), -1, np.int64)
    first[around[inner[::-1]]] = sequence[inner[::-1]]
    above = np.append(around, NO_ROW)[parent[rows]]
    nested = (first[rows] >= 0) & (above != NO_ROW)
    below = np.full(len(trace), -1, np.int64)
    below[above[nested][::-1]] = first[rows[nested]][::-1]
    number = np.where(first >= 0, first, below)[rows]
    node = np.zeros(len(trace), np.bool_)
    node[rows] = True
    forward = np.flatnonzero(trace.host & trace.rows("kind", *OPERATOR_KINDS) & (sequence >= 0) & ~node)
    call = np.append(path, NONE)[nesting.nearest_on_path(parent, path >= 0)]
    forward = forward[np.lexsort((forward, sequence[forward]))]
    width = len(trace) + 1
    at = np.searchsorted(sequence[forward] * width + forward, number * width + rows) - 1
    hit = (at >= 0) & (number >= 0)
    hit[hit] = sequence[forward[at[hit]]] == number[hit]
    layers = np.full(len(rows), UNKNOWN, np.int64)
    layers[hit] = call[forward[at[hit]]]
    return layers


def _by_marks(
    trace: Trace, mark: IntArray, rows: IntArray, around: IntArray, above: IntArray, by_number: IntArray
) -> IntArray:
    """Return the layer of each node, or UNKNOWN, shape (len(rows),).

    - ``rows``: the nodes, in the order in which the autograd engine ran them
    - for each node: ``above`` is the enclosing event, and ``by_number`` is the layer by sequence number, or UNKNOWN
    - for each event: ``mark`` is the layer that it marks, and ``around`` is the node that contains the event
    """
    names = trace.codes("name")
    marks = np.flatnonzero((mark >= 0) & (around >= 0))
    position = np.full(len(trace), -1, np.int64)
    position[rows] = np.arange(len(rows))
    owner = position[around[marks]]
    order = np.lexsort((marks, owner))
    marks, owner = marks[order], owner[order]
    first = np.searchsorted(owner, np.arange(len(rows) + 1))
    # An event name may list nodes. The list of the event name i is ``listed[start[i]:start[i + 1]]``.
    lists = [label.nodes if (label := parse_module_label(name)) else () for name in names.values]
    number = {node: code for code, node in enumerate(dict.fromkeys(node for nodes in lists for node in nodes))}
    listed = np.array([number[node] for nodes in lists for node in nodes], np.int64)
    start = np.concatenate([[0], np.cumsum([len(nodes) for nodes in lists])]).astype(np.int64)
    # for each event name, the number of the listed node with this name; -1 if no list contains the name
    list_code = np.array([number.get(name, number.get(name.partition("_")[2], -1)) for name in names.values], np.int64)
    group = np.stack([trace.ints(name)[rows] for name in ("pid", "tid", "step")] + [above])
    fresh = np.append(True, (group[:, 1:] != group[:, :-1]).any(axis=0))
    node_number = list_code[names.codes[rows]]
    name = names.codes[marks]
    path, turn, left, begin = np.zeros((4, len(marks) + 1), np.int64)
    rest = np.full(int((start[name + 1] - start[name]).sum()), -1, np.int64)
    layers = np.empty(len(rows), np.int64)
    _walk(fresh, first, mark[marks], name, listed, start, node_number, by_number, path, turn, left, begin, rest, layers)
    return layers


@compiled
def _walk(
    fresh: BoolArray, first: IntArray, mark: IntArray, name: Int32Array, listed: IntArray, start: IntArray,
    node: IntArray, by_number: IntArray, path: Out[IntArray], turn: Out[IntArray], left: Out[IntArray],
    begin: Out[IntArray], rest: Out[IntArray], layers: Out[IntArray],
) -> None:  # fmt: skip
    """Set ``layers`` to the layer of each backward node by the rules in the docstring of this module. A call of a layer
    is open from its mark until all nodes that the mark lists have occurred.

    The other arrays are working memory. For each call, ``turn`` is the last node that was assigned to it, and ``left``
    is how many of the listed nodes have not occurred yet. ``rest[begin[c]:begin[c + 1]]`` are these nodes."""
    low = high = 0  # calls before ``low`` are complete, and calls from ``high`` on have not begun
    for i in range(len(node)):
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
                for k in range(begin[high], at):  # the node around the mark has occurred: remove it
                    if rest[k] == node[i]:
                        rest[k] = -1
                        left[high] -= 1
                        break
            high += 1
        if mine >= 0:
            layers[i] = path[mine]
        elif by_number[i] != UNKNOWN:
            layers[i] = by_number[i]
        else:
            best, slot = _longest_waiting(low, high if node[i] >= 0 else low, turn, begin, rest, node[i])
            if best >= 0:
                rest[slot] = -1
                left[best] -= 1
                turn[best] = i
                layers[i] = path[best]
            else:
                layers[i] = UNKNOWN if fresh[i] else layers[i - 1]


@compiled
def _longest_waiting(low, high, turn, begin, rest, node):  # type: ignore[no-untyped-def]
    """Among the open calls that list ``node``, choose the one to which it belongs (case 3 in the docstring of this
    module). Return the call, and the index of ``node`` in ``rest``. Return (-1, -1) if no open call lists ``node``."""
    best, slot = -1, -1
    for c in range(low, high):
        if best >= 0 and turn[c] >= turn[best]:
            continue
        for k in range(begin[c], begin[c + 1]):
            if rest[k] == node:
                best, slot = c, k
                break
    return best, slot
