"""Calls of operators: names and overloads, self times, and the devices on which their work runs.

A re-dispatch is an only child that has the name of its parent. The two events count as one call, unless one of them is
an operator and the other one a labelled range.
Some frameworks also record phases of an operator, such as Paddle's ``compute`` (kind ``operator_detail``). Their time
belongs to the operator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import (
    NO_ROW,
    BoolArray,
    Codes,
    Int32Array,
    IntArray,
    copied,
    filled,
    matches,
    new_array,
)
from perfkit_core.base.language.messages import mark
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.trace.model.cache import once
from perfkit_core.trace.model.schema import DEVICE_WORK, NESTED_KINDS, OPERATOR_DETAIL, OPERATOR_KINDS
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import attribution
from perfkit_core.views.select import marked, threads
from perfkit_core.views.tables import texts

_OVERLOADED: Final = re.compile(r"(\w+::\w+)\.(\w+)")
SEVERAL: Final = "several"
NO_LAUNCH: Final = mark("(no launch recorded)")
OUTSIDE: Final = mark("(launched outside operators)")
"""Names of device work that no operator launched."""


def operator_names(trace: Trace) -> Codes:
    """Return the names of all events. Names of operators do not include the overload."""
    return _split(trace)[0]


def overloads(trace: Trace, rows: IntArray) -> pd.Categorical:
    """Return the overload of each row, null if its name has no overload. Shape (len(rows),)."""
    return texts(_split(trace)[1], rows)


def operator_rows(trace: Trace) -> IntArray:
    """Return the row of the innermost operator around the launch of each device event (-1 if none), shape (rows,)."""
    nearest = np.append(nesting.nearest_on_path(trace.ints("parent"), trace.operators), NO_ROW)
    return nearest[trace.ints("launched_by")]


@once
def _split(trace: Trace) -> tuple[Codes, Codes]:
    names = trace.codes("name")
    parts = [_OVERLOADED.fullmatch(name) for name in names.values]
    if not any(parts):
        return names, Codes(np.full(len(trace), -1, np.int32), [])
    operators = trace.rows("kind", *OPERATOR_KINDS)
    short = [match[1] if match else name for match, name in zip(parts, names.values, strict=True)]
    values, position = _numbered([*short, *names.values])
    count = len(names.values)
    codes = np.where(operators, names.lookup(position[:count], -1), names.lookup(position[count:], -1))
    distinct, overload = _numbered([match[2] if match else None for match in parts])
    overload_codes = np.where(operators, names.lookup(overload, -1), -1)
    return Codes(codes.astype(np.int32), values), Codes(overload_codes.astype(np.int32), distinct)


def _numbered(texts: Sequence[str | None]) -> tuple[list[str], IntArray]:
    """Return a list of the distinct texts, and the index of each item of ``texts`` in this list (-1 for None)."""
    position = {text: code for code, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    return list(position), np.array([-1 if text is None else position[text] for text in texts], np.int64)


@once
def outermost(trace: Trace) -> IntArray:
    """Return the row of each event's outermost operator, which may be the event itself; -1 if none. Shape (rows,)."""
    return nesting.outermost(trace.ints("parent"), trace.operators)


@once
def survivors(trace: Trace) -> IntArray:
    """Return the row of the call that each event is part of, shape (rows,). Usually this is the event itself. In a
    chain of re-dispatches (operators of the same name, each inside the previous one), it is the outermost operator."""
    return nesting.nearest_on_path(trace.ints("parent"), is_call(trace))


@once
def is_call(trace: Trace) -> BoolArray:
    """Return the mask of events that are not re-dispatches, shape (rows,)."""
    nested, parent, name = is_nested(trace), trace.ints("parent"), operator_names(trace).codes
    has_one_child = groupby.sums(parent, len(trace), nested) == 1
    works = trace.rows("kind", *OPERATOR_KINDS, OPERATOR_DETAIL)  # an operator in a label of its name is a call
    alike = (name == name[parent]) & (works == works[parent])
    mask: BoolArray = ~(nested & (parent != NO_ROW) & has_one_child[parent] & alike)
    return mask


def is_nested(trace: Trace) -> BoolArray:
    mask: BoolArray = trace.host & trace.rows("kind", *NESTED_KINDS)
    return mask


def gather(trace: Trace, values: IntArray) -> None:
    """Add the values of re-dispatches and operator details to the operators that they belong to, and set theirs to 0.
    ``values`` is changed."""
    rows, operators = _parts(trace)
    moved = values[rows]
    values[rows] = 0
    np.add.at(values, operators, moved)


@once
def _parts(trace: Trace) -> tuple[IntArray, IntArray]:
    """Return the rows of re-dispatches and operator details, and the rows of the operators that they belong to."""
    detail = trace.host & trace.rows("kind", OPERATOR_DETAIL)
    rows = np.flatnonzero(detail | ~is_call(trace))
    around = rows.copy()
    if detail.any():
        above = nesting.nearest_on_path(trace.ints("parent"), ~detail)[rows]
        part = detail[rows] & (above != NO_ROW) & trace.operators[above]
        around = np.where(part, above, rows)
    return rows, survivors(trace)[around]


def outermost_alike(trace: Trace, rows: IntArray, code: npt.NDArray[Any]) -> BoolArray:
    """Return the mask of the host events ``rows`` that lie in no other one with the same ``code``, shape (len(rows),).
    Times of these events add up, because those of the others are parts of them. Codes are -1 or above."""
    kind = filled(len(trace), -1, np.int32)
    kind[rows] = code
    parent, all_threads = nesting.nearest_above(trace.ints("parent"), marked(trace, rows)), threads(trace)
    by_thread = rows[groupby.stable_order(all_threads.code[rows], len(all_threads))]
    path, on_path = np.empty(len(rows) + 1, np.int64), np.zeros(int(code.max(initial=-1)) + 2, np.int64)
    outermost = np.zeros(len(trace), np.bool_)
    _find_outermost(parent, kind, by_thread, path, on_path, outermost)
    return outermost[rows]


@compiled
def _find_outermost(
    around: IntArray, kind: Int32Array, rows: IntArray,
    path: Out[IntArray], on_path: Out[IntArray], outermost: Out[BoolArray],
) -> None:  # fmt: skip
    """Set the mask ``outermost`` of the ``rows`` that have no ancestor of the same ``kind``. ``rows`` are sorted by
    thread and time. ``around`` is the parent of each row. ``on_path`` counts the events of each kind on the ``path`` to
    the current row."""
    depth = 0
    for row in rows:
        while depth and path[depth - 1] != around[row]:
            depth -= 1
            on_path[kind[path[depth]] + 1] -= 1
        if not depth:  # the row is not below the previous event: rebuild the path
            above = around[row]
            while above >= 0:
                path[depth] = above
                depth += 1
                on_path[kind[above] + 1] += 1
                above = around[above]
            for k in range(depth // 2):
                path[k], path[depth - 1 - k] = path[depth - 1 - k], path[k]
        outermost[row] = on_path[kind[row] + 1] == 0
        path[depth] = row
        depth += 1
        on_path[kind[row] + 1] += 1


@once
def self_cpu_ns(trace: Trace, native: bool = False) -> IntArray:
    """Return the self time of each host event in ns, shape (rows,): its duration less the union of its children. If
    ``native``, the sum of the children is subtracted instead."""
    _parts(trace)  # first, because it needs much memory
    self_ns = _less_each_child(trace) if native else np.maximum(trace.ints("self_ns"), 0, out=new_array(len(trace)))
    gather(trace, self_ns)
    return self_ns


def native_self_sum_ns(trace: Trace) -> int:
    return int(_less_each_child(trace)[is_nested(trace)].sum())


def _less_each_child(trace: Trace) -> IntArray:
    parent, self_ns = trace.ints("parent"), copied(trace.ints("dur_ns"))
    children = np.flatnonzero(is_nested(trace) & (parent != NO_ROW))
    np.subtract.at(self_ns, parent[children], trace.ints("dur_ns")[children])
    return self_ns


def self_device_ns(trace: Trace, counted: BoolArray) -> IntArray:
    """Return the self device time of each event in ns, shape (rows,). Device work counts for the innermost
    event around its launch that is an operator or in ``counted``."""
    operators = trace.operators
    if (counted & ~operators).any():
        return _self_device_ns(trace, counted | operators)
    return _operators_self_device_ns(trace)


@once  # most views need this array
def _operators_self_device_ns(trace: Trace) -> IntArray:
    return _self_device_ns(trace, trace.operators)


def _self_device_ns(trace: Trace, events: BoolArray) -> IntArray:
    _parts(trace)  # first, because it needs much memory
    owner = attribution.owners(trace)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW))
    owner = owner[work]
    launcher = nesting.nearest_on_path(trace.ints("parent"), events)[owner]
    launched = launcher != NO_ROW
    self_ns = filled(len(trace), 0)
    np.add.at(self_ns, launcher[launched], trace.ints("dur_ns")[work[launched]])
    gather(trace, self_ns)
    return self_ns


@once
def worked_on(trace: Trace) -> Codes:
    """Return the device of each event, shape (rows,). For a host event that launched device work, this is the device of
    the work, or ``several`` if the work ran on more than one device."""
    device = trace.codes("device")
    owner = attribution.owners(trace)
    work = trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW)
    devices, codes = filled(len(trace), 0), device.codes.astype(np.int64)
    for code in np.unique(device.codes[work]):
        launches = filled(len(trace), 0)
        launches[owner[work & (device.codes == code)]] = 1
        launched = trace.host & (nesting.sum_up(trace.ints("parent"), launches) > 0)
        devices += launched
        codes[launched] = code
    codes[devices > 1] = len(device.values)
    return Codes(codes.astype(np.int32), [*device.values, SEVERAL])


def on_device(trace: Trace, pattern: str | None) -> BoolArray:
    """Return the mask of events whose device matches ``pattern`` or that launched work on a matching device. All events
    match if ``pattern`` is None. Raises UsageError."""
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    mask = np.zeros(len(trace), np.bool_)
    for codes in (trace.codes("device"), worked_on(trace)):
        mask |= codes.lookup(matches(codes.values, pattern), False)
    return mask
