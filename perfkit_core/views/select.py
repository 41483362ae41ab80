"""Which events a view counts (an account filter): step numbers, and patterns on the name, the kind and the device."""

from __future__ import annotations

import numpy as np

from perfkit_core.algorithms import regex
from perfkit_core.algorithms.arrays import BoolArray, IntArray
from perfkit_core.errors import UsageError
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace, once
from perfkit_core.plugins.contracts import ViewRequest


def selected(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events of the wanted steps that match every pattern, shape (rows,). Raises UsageError."""
    return in_steps(trace, request) & accounted(trace, request)


def accounted(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events that match the patterns of the request, whatever their step. Raises UsageError."""
    chosen = _matching(trace, "name", request.pattern) & _matching(trace, "device", request.device)
    if request.kind is not None:
        chosen &= _matching(trace, "kind", request.kind) | _matching(trace, "category", request.kind)
    return chosen


def marked(trace: Trace, rows: IntArray) -> BoolArray:
    """True for the events of these rows."""
    found = np.zeros(len(trace), np.bool_)
    found[rows] = True
    return found


def in_steps(trace: Trace, request: ViewRequest) -> BoolArray:
    """True for events of the wanted steps; all when none are named. Raises UsageError for a step that is not there."""
    if request.steps is None:
        return np.ones(len(trace), np.bool_)
    recorded = step_numbers(trace)
    missing = sorted(set(request.steps) - set(recorded))
    if missing:
        known = ", ".join(map(str, recorded[:20])) or "none"
        raise UsageError(f"step {missing[0]} was not recorded", f"recorded steps: {known}")
    return np.isin(trace.ints("step"), request.steps)


@once
def step_numbers(trace: Trace) -> tuple[int, ...]:
    """The numbers of the steps that were recorded as a whole, ascending."""
    return tuple(np.unique(trace.ints("step")[trace.host & trace.rows("kind", STEP)]).tolist())


def _matching(trace: Trace, column: str, pattern: str | None) -> BoolArray:
    if pattern is None:
        return np.ones(len(trace), np.bool_)
    codes = trace.codes(column)
    found: BoolArray = codes.lookup(regex.matches(codes.values, pattern), False)
    return found
