"""What belongs to a host event itself, and to none inside it?

The recorded details of an operator are part of it. An operator that does nothing but call itself once more (a
re-dispatch) is one call with what it called.
"""

from __future__ import annotations

import numpy as np

from perfkit_core import nesting
from perfkit_core.analyses import attribution
from perfkit_core.analyses.once import once
from perfkit_core.analyses.operator import overloads
from perfkit_core.schema import DEVICE_WORK, NESTED_KINDS, NO_ROW, OPERATOR_DETAIL, OPERATOR_KINDS
from perfkit_core.trace import BoolArray, IntArray, Trace


@once
def survivors(trace: Trace) -> IntArray:
    """For each event the event it is counted in: itself, or for a mere re-dispatch the outermost of the chain."""
    parent, name = trace.ints("parent"), overloads.operator_names(trace).codes
    nested = _nested(trace) & (parent != NO_ROW)
    children = np.bincount(parent[nested], minlength=len(trace))
    again = nested & (name == name[parent]) & (children[parent] == 1)
    return nesting.nearest_on_path(parent, ~again)


@once
def is_call(trace: Trace) -> BoolArray:
    """True for all events but mere re-dispatches."""
    once: BoolArray = survivors(trace) == np.arange(len(trace))
    return once


def gathered(trace: Trace, values: IntArray) -> IntArray:
    """Values of host events, those of re-dispatches and details added to the event that they are part of."""
    total = np.zeros(len(values), np.int64)
    np.add.at(total, _holders(trace), values)
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
    owner = attribution.owners(trace)
    work = trace.rows("kind", *DEVICE_WORK) & (owner != NO_ROW)
    holder = nesting.nearest_on_path(trace.ints("parent"), counted | _operators(trace))[owner[work]]
    found = holder != NO_ROW
    own = np.zeros(len(trace), np.int64)
    np.add.at(own, holder[found], trace.ints("dur_ns")[work][found])
    return gathered(trace, own)


def whole_native_ns(trace: Trace) -> int:
    """Sum of the native self times of all host events."""
    return int(_less_each_child(trace)[_nested(trace)].sum())


@once
def _holders(trace: Trace) -> IntArray:
    """For each event the one that its own time counts for, shape (rows,)."""
    survivor = survivors(trace)
    detail = trace.host & trace.rows("kind", OPERATOR_DETAIL)
    around = nesting.nearest_on_path(trace.ints("parent"), ~detail)
    part = detail & (around != NO_ROW) & _operators(trace)[around]
    return survivor[np.where(part, around, np.arange(len(trace)))]


def _less_each_child(trace: Trace) -> IntArray:
    parent, own = trace.ints("parent"), trace.ints("dur_ns").copy()
    children = np.flatnonzero(_nested(trace) & (parent != NO_ROW))
    np.subtract.at(own, parent[children], trace.ints("dur_ns")[children])
    return own


def _operators(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", *OPERATOR_KINDS)


def _nested(trace: Trace) -> BoolArray:
    return trace.host & trace.rows("kind", *NESTED_KINDS)
