"""Which layer each node of a backward pass belongs to.

A node is an operator that its adapter marked as backward, or one directly inside a recorded backward span. Its layer
is, in this order: that of the first backward mark in it; that of the forward operator with its sequence number; that of
a call whose mark lists nodes of its name (of several the one whose backward went on longest ago, as engines take the
node that has waited longest; a nested call before the one around it); that of the node before it, for what a node
leaves behind, as the accumulation of a parameter's gradient.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from perfkit_core import module_labels, nesting
from perfkit_core.schema import BACKWARD, FORWARD, NO_ROW, OPERATOR_KINDS, OPTIMIZER
from perfkit_core.trace import BoolArray, IntArray, Trace

_UNKNOWN, _NONE = -2, -1


def assign(trace: Trace, phase: pa.Array, path: IntArray, mark: IntArray) -> IntArray:
    """Path number of each node (-1: none, and for all other events), shape (rows,). ``path`` and ``mark`` are those of
    the calls and marks (:class:`perfkit_core.modules.Calls`)."""
    node = _nodes(trace)
    rows = np.flatnonzero(node)
    result = np.full(len(trace), _NONE, np.int64)
    if not len(rows):
        return result
    around = nesting.nearest_on_path(trace.ints("parent"), node)
    known = _by_number(trace, phase, path, rows, around)
    above = _above(trace, node, rows)
    order = _in_turn(trace, rows, above)
    found = _by_marks(trace, mark, rows[order], around, above[order], known[order])
    result[rows[order]] = np.maximum(found, _NONE)
    return result


def _nodes(trace: Trace) -> BoolArray:
    """Operators with the mark of their adapter, and the outermost operators of backward spans."""
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    span = trace.host & trace.rows("kind", BACKWARD)
    stops = operator | span | trace.rows("kind", FORWARD, OPTIMIZER)
    parent = trace.ints("parent")
    nearest = np.append(nesting.nearest_on_path(parent, stops), NO_ROW)[parent]
    inside = np.append(span, False)[nearest]
    node: BoolArray = operator & (trace.rows("phase", BACKWARD) | inside)
    return node


def _by_number(trace: Trace, phase: pa.Array, path: IntArray, rows: IntArray, around: IntArray) -> IntArray:
    """Layer by sequence number: that of the last operator before the node that had its number, shape (len(rows),)."""
    sequence = trace.ints("sequence")
    number = _numbers(sequence, trace.ints("parent"), rows, around)
    node = np.zeros(len(trace), np.bool_)
    node[rows] = True
    made = np.flatnonzero(trace.host & trace.rows("kind", *OPERATOR_KINDS) & (sequence >= 0) & ~node)
    call = np.append(path, _NONE)[nesting.nearest_on_path(trace.ints("parent"), path >= 0)]
    made = made[np.lexsort((made, sequence[made]))]
    width = len(trace) + 1
    keys = sequence[made] * width + made
    at = np.searchsorted(keys, number * width + rows) - 1
    hit = (at >= 0) & (number >= 0)
    hit[hit] = sequence[made[at[hit]]] == number[hit]
    found = np.full(len(rows), _UNKNOWN, np.int64)
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
    parent = trace.ints("parent")
    stops = node | trace.host & trace.rows("kind", BACKWARD)
    return np.append(nesting.nearest_on_path(parent, stops), NO_ROW)[parent[rows]]


def _in_turn(trace: Trace, rows: IntArray, above: IntArray) -> IntArray:
    """Nodes as an engine took them: by thread, by what is around them, by time."""
    return np.lexsort((rows, above, trace.ints("step")[rows], trace.ints("tid")[rows], trace.ints("pid")[rows]))


def _by_marks(
    trace: Trace, mark: IntArray, rows: IntArray, around: IntArray, above: IntArray, known: IntArray
) -> IntArray:
    """Layers of nodes in turn, from the marks inside them and from the nodes that marks list."""
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


@njit(cache=True, nogil=True)
def _walk(fresh, first, mark, name, listed, start, wanted, known):  # type: ignore[no-untyped-def]
    """One pass over the nodes. Open calls: path, what they still list, and when their backward last went on."""
    count = len(wanted)
    found = np.empty(count, np.int64)
    path = np.empty(len(mark), np.int64)
    begin = np.empty(len(mark) + 1, np.int64)
    turn = np.empty(len(mark), np.int64)
    low = high = 0
    total = 0
    for m in range(len(mark)):
        total += start[name[m] + 1] - start[name[m]]
    rest = np.full(total, -1, np.int64)
    begin[0] = 0
    for i in range(count):
        if fresh[i]:
            low = high
        mine = -1
        for m in range(first[i], first[i + 1]):
            at = begin[high]
            for k in range(start[name[m]], start[name[m] + 1]):
                rest[at] = listed[k]
                at += 1
            path[high], turn[high], begin[high + 1] = mark[m], i, at
            if mine < 0:
                mine = high
                for k in range(begin[high], at):  # the node that holds the mark is one of those listed
                    if rest[k] == wanted[i]:
                        rest[k] = -1
                        break
            high += 1
        if mine >= 0:
            found[i] = path[mine]
        elif known[i] != _UNKNOWN:
            found[i] = known[i]
        else:
            best, slot = -1, -1
            for c in range(low, high if wanted[i] >= 0 else low):
                if best >= 0 and turn[c] >= turn[best]:
                    continue
                for k in range(begin[c], begin[c + 1]):
                    if rest[k] == wanted[i]:
                        best, slot = c, k
                        break
            if best >= 0:
                rest[slot] = -1
                turn[best] = i
                found[i] = path[best]
            else:
                found[i] = _UNKNOWN if fresh[i] else found[i - 1]
    return found
