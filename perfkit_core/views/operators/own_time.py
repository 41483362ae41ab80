"""What belongs to a host event itself, and to none inside it?

The recorded details of an operator are part of it. An operator that does nothing but call itself once more (a
re-dispatch) is one call with what it called.
"""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.model.schema import DEVICE_WORK, NESTED_KINDS, OPERATOR_DETAIL
from perfkit_core.model.trace import Trace, once
from perfkit_core.runtime.compile import compiled
from perfkit_core.views import attribution
from perfkit_core.views.operators import overloads


@once
def survivors(trace: Trace) -> IntArray:
    """For each event the event it is counted in: itself, or for a mere re-dispatch the outermost of the chain."""
    return nesting.nearest_on_path(trace.ints("parent"), is_call(trace))


@once
def is_call(trace: Trace) -> BoolArray:
    """True for all events but mere re-dispatches."""
    found = np.ones(len(trace), np.bool_)
    name = overloads.operator_names(trace).codes
    _find_again(trace.ints("parent"), _nested(trace), name, np.zeros(len(trace), np.int32), found)
    return found


@compiled
def _find_again(parent, nested, name, children, call):  # type: ignore[no-untyped-def]
    for i in range(len(parent)):
        if nested[i] and parent[i] >= 0:
            children[parent[i]] += 1
    for i in range(len(parent)):
        p = parent[i]
        if nested[i] and p >= 0 and children[p] == 1 and name[i] == name[p]:
            call[i] = False


def gathered(trace: Trace, values: IntArray) -> IntArray:
    """Values of host events, those of re-dispatches and details added to the event that they are part of."""
    total = values.astype(np.int64)
    rows, holders = _held(trace)
    np.subtract.at(total, rows, values[rows])
    np.add.at(total, holders, values[rows])
    return total


@once
def self_cpu_ns(trace: Trace, native: bool = False) -> IntArray:
    """Duration less the union of what is inside; natively less each child, so that children that overlap are
    subtracted twice. Shape (rows,)."""
    own = _less_each_child(trace) if native else np.maximum(trace.ints("self_ns"), 0)
    return gathered(trace, own)


def self_device_ns(trace: Trace, counted: BoolArray) -> IntArray:
    """Device work whose launch lies in the event, but in no operator and no ``counted`` event inside it. Shape
    (rows,)."""
    operators = trace.operators
    if (counted & ~operators).any():
        return _device_ns_in(trace, counted | operators)
    return _device_ns_in_operators(trace)


@once
def _device_ns_in_operators(trace: Trace) -> IntArray:
    return _device_ns_in(trace, trace.operators)


def _device_ns_in(trace: Trace, events: BoolArray) -> IntArray:
    owner = attribution.owners(trace)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW))
    holder = nesting.nearest_on_path(trace.ints("parent"), events)[owner[work]]
    found = holder != NO_ROW
    own = np.zeros(len(trace), np.int64)
    np.add.at(own, holder[found], trace.ints("dur_ns")[work[found]])
    return gathered(trace, own)


def whole_native_ns(trace: Trace) -> int:
    """Sum of the native self times of all host events."""
    return int(_less_each_child(trace)[_nested(trace)].sum())


@once
def _held(trace: Trace) -> tuple[IntArray, IntArray]:
    """The events whose own time counts for another one, and which that is."""
    detail = trace.host & trace.rows("kind", OPERATOR_DETAIL)
    rows = np.flatnonzero(detail | ~is_call(trace))
    around = rows.copy()
    if detail.any():
        above = nesting.nearest_on_path(trace.ints("parent"), ~detail)[rows]
        part = detail[rows] & (above != NO_ROW) & trace.operators[above]
        around = np.where(part, above, rows)
    return rows, survivors(trace)[around]


def _less_each_child(trace: Trace) -> IntArray:
    parent, own = trace.ints("parent"), trace.ints("dur_ns").copy()
    children = np.flatnonzero(_nested(trace) & (parent != NO_ROW))
    np.subtract.at(own, parent[children], trace.ints("dur_ns")[children])
    return own


def _nested(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", *NESTED_KINDS)
