"""Which layer of the model each event belongs to.

The calls of layers are spans: the labels of ``annotate`` (whole paths, ``layers.0.attention``), or else what a
framework records by itself (``ResNet_0/Sequential_1/Conv2d_3``: the path is that of the calls around it). A host event
belongs to the nearest call around it, a node of a backward pass to the layer whose forward made it (see
``backward_modules``) with everything in it, device work to the layer of its launch.

Which layer each node of a backward pass belongs to.

A node is an operator that its adapter marked as backward, or one directly inside a recorded backward span. Its layer
is, in this order: that of the first backward mark in it; that of the forward operator with its sequence number; that of
a call whose mark lists nodes of its name (of several the one whose backward went on longest ago, as engines take the
node that has waited longest; a nested call before the one around it); that of the node before it, for what a node
leaves behind, as the accumulation of a parameter's gradient.

The layers of a backward pass from the marks in it: a mark names the layer of its node, and may list further nodes.

Nodes are taken in turn. A node without a mark belongs to the call that still lists one of its name; of several to the
one whose backward went on longest ago, as an engine goes breadth first; of those that began together to the inner one,
whose mark comes first. What nobody lists follows the node before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray, texts
from perfkit_core.algorithms.trees import merge
from perfkit_core.assembly import layer_labels
from perfkit_core.assembly.draft import LAYER
from perfkit_core.model.schema import ANNOTATION, BACKWARD, FORWARD, OPERATOR_KINDS, OPTIMIZER
from perfkit_core.model.trace import Trace
from perfkit_core.runtime.compile import ENOUGH_CELLS, compiled

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
    lists = [label.nodes if (label := layer_labels.decode(value)) else () for value in values]
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


def assign_backward(trace: Trace, path: IntArray, mark: IntArray) -> IntArray:
    """Path number of each node (-1: none, and for all other events), shape (rows,). ``path`` and ``mark`` are those of
    the calls and marks (:class:`perfkit_core.assembly.layers.Calls`)."""
    if not (mark >= 0).any() and not trace.known("sequence"):  # nothing ties a node to a forward pass
        return np.broadcast_to(np.int64(NONE), len(trace))
    node = _nodes(trace)
    rows = np.flatnonzero(node)
    result = np.full(len(trace), NONE, np.int64)
    if not len(rows):
        return result
    around = nesting.nearest_on_path(trace.ints("parent"), node)
    known = _by_number(trace, path, rows, around)
    above = _above(trace, node, rows)
    order = _in_turn(trace, rows, above)
    found = by_marks(trace, mark, rows[order], around, above[order], known[order])
    result[rows[order]] = np.maximum(found, NONE)
    return result


def _nodes(trace: Trace) -> BoolArray:
    """Operators with the mark of their adapter, and the outermost operators of backward spans."""
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    span = trace.host & trace.rows("kind", BACKWARD)
    stops = operator | span | trace.rows("kind", FORWARD, OPTIMIZER)
    inside = np.append(span, False)[nesting.nearest_above(trace.ints("parent"), stops)]
    node: BoolArray = operator & (trace.rows("phase", BACKWARD) | inside)
    return node


def _by_number(trace: Trace, path: IntArray, rows: IntArray, around: IntArray) -> IntArray:
    """Layer by sequence number: that of the last operator before the node that had its number, shape (len(rows),)."""
    sequence = trace.ints("sequence")
    number = _numbers(sequence, trace.ints("parent"), rows, around)
    node = np.zeros(len(trace), np.bool_)
    node[rows] = True
    made = np.flatnonzero(trace.host & trace.rows("kind", *OPERATOR_KINDS) & (sequence >= 0) & ~node)
    call = np.append(path, NONE)[nesting.nearest_on_path(trace.ints("parent"), path >= 0)]
    made = made[np.lexsort((made, sequence[made]))]
    width = len(trace) + 1
    keys = sequence[made] * width + made
    at = np.searchsorted(keys, number * width + rows) - 1
    hit = (at >= 0) & (number >= 0)
    hit[hit] = sequence[made[at[hit]]] == number[hit]
    found = np.full(len(rows), UNKNOWN, np.int64)
    found[hit] = call[made[at[hit]]]
    return found


def _numbers(sequence: IntArray, parent: IntArray, rows: IntArray, around: IntArray) -> IntArray:
    """The sequence number of each node: its own, or the first one inside it."""
    inner = np.flatnonzero((sequence >= 0) & (around >= 0))
    first = np.full(len(sequence), -1, np.int64)
    first[around[inner[::-1]]] = sequence[inner[::-1]]
    above = np.append(around, NO_ROW)[parent[rows]]
    nested = (first[rows] >= 0) & (above != NO_ROW)
    below = np.full(len(sequence), -1, np.int64)
    below[above[nested][::-1]] = first[rows[nested]][::-1]
    return np.where(first >= 0, first, below)[rows]


def _above(trace: Trace, node: BoolArray, rows: IntArray) -> IntArray:
    """The node or backward span around each node, -1: none."""
    stops = node | trace.host & trace.rows("kind", BACKWARD)
    return nesting.nearest_above(trace.ints("parent"), stops)[rows]


def _in_turn(trace: Trace, rows: IntArray, above: IntArray) -> IntArray:
    """Nodes as an engine took them: by thread, by what is around them, by time."""
    return np.lexsort((rows, above, trace.ints("step")[rows], trace.ints("tid")[rows], trace.ints("pid")[rows]))


CALL_SEPARATOR: Final = "/"
"""Between the parts of a path that was put together from the calls around it."""
LABEL_SEPARATOR: Final = "."
"""Between the parts of a path that ``annotate`` wrote."""
_NUMBERED: Final = re.compile(r"_\d+$")
"""Ends a part that names one layer, not just its class."""


@dataclass(frozen=True, slots=True)
class Calls:
    """``path`` of each event that spans the call of a layer, and ``mark`` of each that marks its backward pass: numbers
    of ``paths``, -1 for all other events, shape (rows,)."""

    paths: list[str]
    path: IntArray
    mark: IntArray

    @property
    def known(self) -> bool:
        """Whether the recording tells any layer."""
        return bool(self.paths)


def assign(trace: Trace) -> pa.ChunkedArray:
    """The module column (dictionary, shape (rows,)); what the source itself says where it names no layer's call.

    ``trace`` may have a column ``layer``, and its phase column is still that of the source: what an adapter marked.
    """
    calls = labelled(trace)
    if not calls.known and trace.known(LAYER):
        calls = _nested(trace)
    if not calls.known:
        return trace.column("module")
    own = np.where(calls.path >= 0, calls.path, calls.mark)
    own = np.where(own >= 0, own, assign_backward(trace, calls.path, calls.mark))
    module = nesting.last_on_path(trace.ints("parent"), own)
    launched_by = trace.ints("launched_by")
    launched = launched_by != NO_ROW
    module[launched] = module[launched_by[launched]]
    return texts(module.astype(np.int32), calls.paths)


def labelled(trace: Trace) -> Calls:
    """The calls that ``annotate`` labelled. The path of a model itself is the name of its class."""
    names = trace.codes("name")
    found = {code: label for code, name in enumerate(names.values) if (label := layer_labels.decode(name))}
    if not found:
        return Calls([], _nothing(trace), _nothing(trace))
    paths = list(dict.fromkeys(label.module for label in found.values()))
    position = {path: number for number, path in enumerate(paths)}
    spans, marks = np.full((2, len(names.values)), -1, np.int64)
    for code, label in found.items():
        (marks if label.backward else spans)[code] = position[label.module]
    host = trace.host & trace.rows("kind", ANNOTATION)
    return Calls(paths, np.where(host, names.lookup(spans, -1), -1), np.where(host, names.lookup(marks, -1), -1))


def _nothing(trace: Trace) -> IntArray:
    return np.broadcast_to(np.int64(-1), len(trace))


def _nested(trace: Trace) -> Calls:
    """The calls that the framework recorded by itself: a path of the parts of the calls around."""
    layer = trace.codes(LAYER)
    tree = merge(trace.ints("parent"), layer.codes.astype(np.int64), trace.host & (layer.codes >= 0))
    texts = _paths(tree.parent.tolist(), [layer.values[key] for key in tree.key.tolist()])
    paths = list(dict.fromkeys(texts))
    position = {path: number for number, path in enumerate(paths)}
    number = np.array([*(position[text] for text in texts), -1], np.int64)
    return Calls(paths, number[tree.node], _nothing(trace))


def _paths(parent: list[int], part: list[str]) -> list[str]:
    """The path of each node. A numbered layer that is called outside of all others, and is known below one of them, is
    that one: so it is when activations are computed again in a backward pass."""
    below: dict[str, list[int]] = {}
    for node, above in enumerate(parent):
        if above != NO_ROW and _NUMBERED.search(part[node]):
            below.setdefault(part[node], []).append(node)
    once = {name: nodes[0] for name, nodes in below.items() if len(nodes) == 1}
    plain = _joined(parent, part, {})
    return _joined(parent, part, {node: plain[once[part[node]]] for node in _roots(parent) if part[node] in once})


def _joined(parent: list[int], part: list[str], known: dict[int, str]) -> list[str]:
    paths: list[str] = []
    for node, above in enumerate(parent):
        whole = part[node] if above == NO_ROW else paths[above] + CALL_SEPARATOR + part[node]
        paths.append(known.get(node, whole))
    return paths


def _roots(parent: list[int]) -> list[int]:
    return [node for node, above in enumerate(parent) if above == NO_ROW]
