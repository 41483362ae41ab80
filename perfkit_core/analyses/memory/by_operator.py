"""Who allocated how much, and freed how much?

Each memory event counts once: for the innermost operator around it, outside of operators for the nearest host event.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfkit_core.analyses.memory import native, owners
from perfkit_core.analyses.memory.events import MemoryEvents, explain_empty, memory_events
from perfkit_core.analyses.tables import plain, texts
from perfkit_core.plugins.contracts import MergedRows, View, ViewRequest
from perfkit_core.table_columns import DEVICE_NAME, NAME, added_by, count, key, size
from perfkit_core.trace import BoolArray, Codes, IntArray, Trace

GROUPINGS = ("phase", "module", "step", "thread", "category", "rank")
MEASURES = ("allocations", "frees", "allocated_bytes", "freed_bytes", "increase_bytes")


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Columns name (of the owner), device, type (allocated; reserved: the allocator's own reserve), [phase, module,
    step, tid, category, rank,] allocations, frees, allocated_bytes, freed_bytes, increase_bytes.

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
    if as_native and native.exists(trace):
        return native.owned(trace, found)
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
