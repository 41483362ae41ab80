"""For which host event was memory allocated or freed?

The innermost operator around a memory event says what took the memory, the outermost one what the user called. Outside
every operator it is the nearest host event, and a step stands for all steps. Names in parentheses are perfkit's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting, regex
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.errors import UsageError
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest, split_grouping
from perfkit_core.views import grouping
from perfkit_core.views.operators import dataflow
from perfkit_core.views.select import selected
from perfkit_core.views.tables import texts

IN_STEP: Final = "(in a step, outside operators)"
OUTSIDE: Final = "(outside host events)"

_OF_THE_OWNER: Final = ("shape", "stack", "category")


def innermost(trace: Trace, rows: IntArray) -> IntArray:
    """Row of the innermost operator around each memory event, else of the nearest host event; -1: none."""
    parent = trace.ints("parent")
    operator = nesting.nearest_above(parent, trace.operators)[rows]
    return np.where(operator == NO_ROW, parent[rows], operator)


def outermost(trace: Trace, rows: IntArray) -> IntArray:
    """Row of the outermost operator around each memory event, else of the nearest host event; -1: none."""
    above = trace.ints("parent")[rows]
    operator = np.where(above == NO_ROW, NO_ROW, dataflow.outermost(trace)[above])
    return np.where(operator == NO_ROW, above, operator)


def names(trace: Trace, owner: IntArray, steps_apart: bool = False) -> pd.Categorical:
    """The names of owners, shape (len(owner),)."""
    known = trace.codes("name")
    labels = list(dict.fromkeys([*known.values, IN_STEP, OUTSIDE]))
    step = np.append(trace.rows("kind", STEP) & (not steps_apart), False)[owner]
    code = np.where(step, labels.index(IN_STEP), np.append(known.codes, labels.index(OUTSIDE))[owner])
    return pd.Categorical.from_codes(code, categories=pd.Index(labels, dtype=object))


def keys(trace: Trace, request: ViewRequest, rows: IntArray, owner: IntArray, known: Sequence[str]) -> dict[str, Any]:
    """Columns to group memory events by: their step, phase and thread, and what their owners know. Raises UsageError
    for a grouping that is not in ``known``."""
    found: dict[str, Any] = {}
    for item in request.by:
        name = split_grouping(item)[0]
        if name not in known:
            raise UsageError(f"this view cannot be grouped by {name!r}", f"known: {', '.join(known)}")
        of = np.where(owner == NO_ROW, rows, owner) if name in _OF_THE_OWNER else rows
        found |= _SPECIAL.get(name, grouping.keys)(trace, replace(request, by=(item,)), of, known)
    return found


def chosen(trace: Trace, request: ViewRequest, rows: IntArray, name: pd.Categorical) -> BoolArray:
    """True for the memory events that count: of the wanted steps, devices and kinds, with an owner whose name matches
    the pattern. Raises UsageError."""
    found = selected(trace, replace(request, pattern=None))[rows]
    if request.pattern is None:
        return found
    matching: BoolArray = found & regex.matches(list(name.categories), request.pattern)[name.codes]
    return matching


def _module(trace: Trace, request: ViewRequest, rows: IntArray, known: Sequence[str]) -> dict[str, Any]:
    """Of the nearest event around it that knows its module."""
    knows = trace.codes("module").codes >= 0
    nearest = nesting.nearest_on_path(trace.ints("parent"), knows)[rows]
    return {"module": texts(trace.codes("module"), np.where(nearest == NO_ROW, rows, nearest))}


def _phase(trace: Trace, request: ViewRequest, rows: IntArray, known: Sequence[str]) -> dict[str, Any]:
    """Of the nearest host event: memory events know their phase only inside of a marked one, not that it is another."""
    parent = trace.ints("parent")[rows]
    return {"phase": texts(trace.codes("phase"), np.where(parent == NO_ROW, rows, parent))}


def _category(trace: Trace, request: ViewRequest, rows: IntArray, known: Sequence[str]) -> dict[str, Any]:
    return {"category": texts(trace.codes("category"), rows)}


_SPECIAL: Final[dict[str, Callable[[Trace, ViewRequest, IntArray, Sequence[str]], dict[str, Any]]]] = {
    "module": _module,
    "phase": _phase,
    "category": _category,
}
