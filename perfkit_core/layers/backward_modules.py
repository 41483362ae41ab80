"""Which layer each node of a backward pass belongs to.

A node is an operator that its adapter marked as backward, or one directly inside a recorded backward span. Its layer
is, in this order: that of the first backward mark in it; that of the forward operator with its sequence number; that of
a call whose mark lists nodes of its name (of several the one whose backward went on longest ago, as engines take the
node that has waited longest; a nested call before the one around it); that of the node before it, for what a node
leaves behind, as the accumulation of a parameter's gradient.
"""

from __future__ import annotations

import numpy as np

from perfkit_core import nesting
from perfkit_core.layers.backward_marks import NONE, UNKNOWN, by_marks
from perfkit_core.schema import BACKWARD, FORWARD, NO_ROW, OPERATOR_KINDS, OPTIMIZER
from perfkit_core.trace import BoolArray, IntArray, Trace


def assign(trace: Trace, path: IntArray, mark: IntArray) -> IntArray:
    """Path number of each node (-1: none, and for all other events), shape (rows,). ``path`` and ``mark`` are those of
    the calls and marks (:class:`perfkit_core.layers.modules.Calls`)."""
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
