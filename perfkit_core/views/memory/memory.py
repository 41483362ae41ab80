"""Who allocated how much, and freed how much?

Each memory event counts once: for the innermost operator around it, outside of operators for the nearest host event.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, Codes, IntArray
from perfkit_core.model.columns import DEVICE_NAME, NAME, added_by, count, key, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.views.memory import owners
from perfkit_core.views.memory.events import MemoryEvents, explain_empty, memory_events
from perfkit_core.views.steps.step_rows import cut_off_rows
from perfkit_core.views.tables import plain, texts

GROUPINGS = ("phase", "module", "step", "thread", "category", "rank")
MEASURES = ("allocations", "frees", "allocated_bytes", "freed_bytes", "increase_bytes")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row an owner and device; see :data:`COLUMNS`.

    ``native``: as the framework's own memory summary counts, which is more than once.
    """
    found = memory_events(trace)
    event, owner = _owned(trace, found, request.native)
    name = owners.names(trace, owner, steps_apart=request.native)
    rows = found.row[event]
    counted = owners.chosen(trace, request, rows, name)
    keys = {"name": name, "device": texts(trace.codes("device"), rows), "type": _type(found.reserve[event])}
    keys |= owners.keys(trace, request, rows, owner, GROUPINGS)
    frame = pd.DataFrame({**keys, **_measures(found.change[event])})[counted]
    sums = frame.groupby(list(keys), sort=False, dropna=False, observed=True)[list(MEASURES)].sum().reset_index()
    return plain(sums)


def _owned(trace: Trace, found: MemoryEvents, as_native: bool) -> tuple[IntArray, IntArray]:
    """Positions of memory events, and the row of the host event that each counts for."""
    if as_native and exists(trace):
        return owned(trace, found)
    return np.arange(len(found.row)), owners.innermost(trace, found.row)


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
