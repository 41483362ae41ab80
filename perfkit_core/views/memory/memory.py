"""Who allocated how much, and freed how much?

Each memory event counts once: for the innermost operator around it, outside of operators for the nearest host event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray, matches
from perfkit_core.errors import UsageError
from perfkit_core.model.columns import DEVICE_NAME, NAME, added_by, count, key, size
from perfkit_core.model.schema import STEP
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest, split_grouping
from perfkit_core.views import grouping
from perfkit_core.views.memory.events import MemoryEvents, explain_empty, memory_events
from perfkit_core.views.operators import calls
from perfkit_core.views.select import selected
from perfkit_core.views.steps.step_rows import cut_off_rows
from perfkit_core.views.tables import plain, texts

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
    operator = np.where(above == NO_ROW, NO_ROW, calls.outermost(trace)[above])
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
    matching: BoolArray = found & matches(list(name.categories), request.pattern)[name.codes]
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


GROUPINGS = ("phase", "module", "step", "thread", "category", "rank")
MEASURES = ("allocations", "frees", "allocated_bytes", "freed_bytes", "increase_bytes")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row an owner and device; see :data:`COLUMNS`.

    ``native``: as the framework's own memory summary counts, which is more than once.
    """
    found = memory_events(trace)
    event, owner = _owned(trace, found, request.native)
    name = names(trace, owner, steps_apart=request.native)
    rows = found.row[event]
    counted = chosen(trace, request, rows, name)
    columns = {"name": name, "device": texts(trace.codes("device"), rows), "type": _type(found.reserve[event])}
    columns |= keys(trace, request, rows, owner, GROUPINGS)
    frame = pd.DataFrame({**columns, **_measures(found.change[event])})[counted]
    sums = frame.groupby(list(columns), sort=False, dropna=False, observed=True)[list(MEASURES)].sum().reset_index()
    return plain(sums)


def _owned(trace: Trace, found: MemoryEvents, as_native: bool) -> tuple[IntArray, IntArray]:
    """Positions of memory events, and the row of the host event that each counts for."""
    if as_native and exists(trace):
        return owned(trace, found)
    return np.arange(len(found.row)), innermost(trace, found.row)


def _type(reserve: BoolArray) -> pd.Categorical:
    return texts(Codes(reserve.astype(np.int32), ["allocated", "reserved"]), np.arange(len(reserve)))


def _measures(change: IntArray) -> dict[str, Any]:
    freed = change < 0
    return {
        "allocations": (~freed).astype(np.int64),
        "frees": freed.astype(np.int64),
        "allocated_bytes": np.where(freed, 0, change),
        "freed_bytes": np.where(freed, -change, 0),
        "increase_bytes": change,
    }


ALLOCATIONS: Final = ("Allocate", "ReservedAllocate")
"""Categories of memory events, where the recording tells them."""
OPERATOR: Final = "Operator"
INNER: Final = "OperatorInner"


def exists(trace: Trace) -> bool:
    """Whether the framework of this recording has such a summary."""
    return bool(trace.rows("category", *ALLOCATIONS).any())


def owned(trace: Trace, found: MemoryEvents) -> tuple[IntArray, IntArray]:
    """Positions of memory events, and the row of the host event that each counts for; some twice.

    Every host event has a row with what happened directly in it; an operator also takes what happened in its direct
    children, except that the parts that frameworks call inner have no row of their own. Only recordings that tell what
    each memory event was have such a summary. What lies outside every host event is in no row.
    """
    parent, category = trace.ints("parent"), trace.codes("category")
    nearest = _in_cut_off_steps(trace, found.row, parent[found.row])
    above = np.append(parent, NO_ROW)[nearest]
    own = np.flatnonzero((nearest != NO_ROW) & ~np.append(category.rows(INNER), False)[nearest])
    lent = np.flatnonzero(np.append(category.rows(OPERATOR), False)[above] & (above != NO_ROW))
    return np.concatenate([own, lent]), np.concatenate([nearest[own], above[lent]])


def _in_cut_off_steps(trace: Trace, rows: IntArray, nearest: IntArray) -> IntArray:
    """The same, with the last step in which nothing was computed: it is no step of ours, so nothing lies in it."""
    start, end = trace.ints("start_ns"), trace.end_ns
    for step in np.flatnonzero(cut_off_rows(trace)):
        inside = (nearest == NO_ROW) & (start[rows] >= start[step]) & (start[rows] <= end[step])
        for column in ("rank", "pid", "tid"):
            inside &= trace.ints(column)[rows] == trace.ints(column)[step]
        nearest = np.where(inside, step, nearest)
    return nearest


COLUMNS = (
    replace(NAME, description="of the owner"),
    DEVICE_NAME,
    key("type", "Type", description="allocated; reserved: the allocator's own reserve"),
    *added_by(GROUPINGS),
    count("allocations", "Allocations", exact=True, per_step=True),
    count("frees", "Frees", exact=True, per_step=True),
    size("allocated_bytes", "Allocated", per_step=True),
    size("freed_bytes", "Freed", per_step=True),
    size("increase_bytes", "Increase", per_step=True),
)

VIEW = View(
    name="memory",
    title="Memory by operator",
    description="allocations and frees, each counted once, at the innermost operator (natively: in several rows)",
    table=table,
    columns=COLUMNS,
    groupings=GROUPINGS,
    order="allocated_bytes",
    explain_empty=explain_empty,
    native=True,
    reduction=MergedRows(),
)
