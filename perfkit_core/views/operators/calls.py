"""Calls of operators: names and overloads, self times, and devices of their work.

A re-dispatch, an operator that only calls itself once more, is one call together with the inner one. Recorded details
of an operator are part of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray, matches
from perfkit_core.model.schema import DEVICE_WORK, NESTED_KINDS, OPERATOR_DETAIL, OPERATOR_KINDS
from perfkit_core.model.trace import Trace, once
from perfkit_core.runtime.compile import compiled
from perfkit_core.views import attribution
from perfkit_core.views.tables import texts

_OVERLOADED: Final = re.compile(r"(\w+::\w+)\.(\w+)")
SEVERAL: Final = "several"


def operator_names(trace: Trace) -> Codes:
    """Return the names of all events, those of operators without overload."""
    return _split(trace)[0]


def overloads(trace: Trace, rows: IntArray) -> pd.Categorical:
    """Return the overload of each row, null if the name has none. Shape (len(rows),)."""
    return texts(_split(trace)[1], rows)


@once
def _split(trace: Trace) -> tuple[Codes, Codes]:
    names = trace.codes("name")
    parts = [_OVERLOADED.fullmatch(name) for name in names.values]
    if not any(parts):
        return names, Codes(np.full(len(trace), -1, np.int32), [])
    operators = trace.rows("kind", *OPERATOR_KINDS)
    merged = [match[1] if match else name for match, name in zip(parts, names.values, strict=True)]
    values, position = _numbered([*merged, *names.values])
    count = len(names.values)
    codes = np.where(operators, names.lookup(position[:count], -1), names.lookup(position[count:], -1))
    distinct, overload = _numbered([match[2] if match else None for match in parts])
    overload_codes = np.where(operators, names.lookup(overload, -1), -1)
    return Codes(codes.astype(np.int32), values), Codes(overload_codes.astype(np.int32), distinct)


def _numbered(texts: Sequence[str | None]) -> tuple[list[str], IntArray]:
    """Return the distinct texts, and the index of each text in them (-1: None)."""
    values = list(dict.fromkeys(text for text in texts if text is not None))
    position = {text: code for code, text in enumerate(values)}
    return values, np.array([-1 if text is None else position[text] for text in texts], np.int64)


@once
def outermost(trace: Trace) -> IntArray:
    """Return the row of the outermost operator around each event or itself, -1 for none. Shape (rows,)."""
    operator = trace.host & trace.rows("kind", *OPERATOR_KINDS)
    return nesting.outermost(trace.ints("parent"), operator)


@once
def survivors(trace: Trace) -> IntArray:
    """Return the event that each event counts for: itself, or the outermost event of a chain of re-dispatches."""
    return nesting.nearest_on_path(trace.ints("parent"), is_call(trace))


@once
def is_call(trace: Trace) -> BoolArray:
    mask = np.ones(len(trace), np.bool_)
    name = operator_names(trace).codes
    _find_again(trace.ints("parent"), is_nested(trace), name, np.zeros(len(trace), np.int32), mask)
    return mask


@compiled
def _find_again(parent, nested, name, children, call):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        if nested[i] and parent[i] >= 0:
            children[parent[i]] += 1
    for i in range(len(parent)):
        p = parent[i]
        if nested[i] and p >= 0 and children[p] == 1 and name[i] == name[p]:
            call[i] = False


def is_nested(trace: Trace) -> BoolArray:
    mask: BoolArray = trace.host & trace.rows("kind", *NESTED_KINDS)
    return mask


def gathered(trace: Trace, values: IntArray) -> IntArray:
    """Return values of host events, with those of re-dispatches and details added to their operator."""
    total = values.astype(np.int64)
    rows, holders = _held(trace)
    np.subtract.at(total, rows, values[rows])
    np.add.at(total, holders, values[rows])
    return total


@once
def _held(trace: Trace) -> tuple[IntArray, IntArray]:
    """Return the rows whose values count for another event, and the row of that event."""
    detail = trace.host & trace.rows("kind", OPERATOR_DETAIL)
    rows = np.flatnonzero(detail | ~is_call(trace))
    around = rows.copy()
    if detail.any():
        above = nesting.nearest_on_path(trace.ints("parent"), ~detail)[rows]
        part = detail[rows] & (above != NO_ROW) & trace.operators[above]
        around = np.where(part, above, rows)
    return rows, survivors(trace)[around]


@once
def self_cpu_ns(trace: Trace, native: bool = False) -> IntArray:
    """Return the duration less the union of the children; natively less each child, so overlaps are subtracted twice.
    Shape (rows,)."""
    return gathered(trace, _less_each_child(trace) if native else np.maximum(trace.ints("self_ns"), 0))


def whole_native_ns(trace: Trace) -> int:
    return int(_less_each_child(trace)[is_nested(trace)].sum())


def _less_each_child(trace: Trace) -> IntArray:
    parent, own = trace.ints("parent"), trace.ints("dur_ns").copy()
    children = np.flatnonzero(is_nested(trace) & (parent != NO_ROW))
    np.subtract.at(own, parent[children], trace.ints("dur_ns")[children])
    return own


def self_device_ns(trace: Trace, counted: BoolArray) -> IntArray:
    """Return the time of device work launched in each event but in no operator and no ``counted`` event inside it,
    shape (rows,)."""
    operators = trace.operators
    if (counted & ~operators).any():
        return _device_ns_in(trace, counted | operators)
    return _device_ns_in_operators(trace)


@once  # cached, as most views need this mask
def _device_ns_in_operators(trace: Trace) -> IntArray:
    return _device_ns_in(trace, trace.operators)


def _device_ns_in(trace: Trace, events: BoolArray) -> IntArray:
    owner = attribution.owners(trace)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW))
    holder = nesting.nearest_on_path(trace.ints("parent"), events)[owner[work]]
    held = holder != NO_ROW
    own = np.zeros(len(trace), np.int64)
    np.add.at(own, holder[held], trace.ints("dur_ns")[work[held]])
    return gathered(trace, own)


@once
def worked_on(trace: Trace) -> Codes:
    """Return the device of each event, shape (rows,): for a host event the device of all work launched in it,
    ``several`` for more than one, its own place for none."""
    place = trace.codes("device")
    owner = attribution.owners(trace)
    work = trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW)
    devices, codes = np.zeros(len(trace), np.int64), place.codes.astype(np.int64)
    for code in np.unique(place.codes[work]):
        mine = np.zeros(len(trace), np.int64)
        mine[owner[work & (place.codes == code)]] = 1
        has = trace.host & (nesting.sum_up(trace.ints("parent"), mine) > 0)
        devices += has
        codes[has] = code
    codes[devices > 1] = len(place.values)
    return Codes(codes.astype(np.int32), [*place.values, SEVERAL])


def on_device(trace: Trace, pattern: str | None) -> BoolArray:
    """Return the mask of events whose device, or that of the work they launched, contains a match. Raises
    UsageError."""
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    mask = np.zeros(len(trace), np.bool_)
    for codes in (trace.codes("device"), worked_on(trace)):
        mask |= codes.lookup(matches(codes.values, pattern), False)
    return mask
