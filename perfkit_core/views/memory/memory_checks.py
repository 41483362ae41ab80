"""View ``memory_checks``: inconsistencies in the recorded memory events, such as frees without an allocation.

All columns after ``events`` are 0 if every memory event of the process was recorded, in order and with its address. If
no event is missing, but two threads recorded events out of order, only ``unexplained_changes`` is above 0.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, RANK, count, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory.events import MISSING, blocks, explain_empty, levels, memory_events, pool_table
from perfkit_core.views.select import selected


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device, with :data:`COLUMNS`. Unexplained changes are NA if no totals were recorded."""
    events, pool_blocks, moved = memory_events(trace), blocks(trace), levels(trace).unexplained
    counted = selected(trace, request)[events.row]

    def per_pool(position: IntArray, values: IntArray | int = 1) -> IntArray:
        total = np.zeros(len(events.pool_rank), np.int64)
        mask = counted[position]
        np.add.at(total, events.pool[position[mask]], np.broadcast_to(values, position.shape)[mask])
        return total

    unexplained = np.flatnonzero((moved != 0) & (moved != MISSING))
    has_totals = np.isin(np.arange(len(events.pool_rank)), events.pool[moved != MISSING])
    columns = {
        "events": per_pool(np.arange(len(events.row))),
        "unexplained_changes": np.where(has_totals, per_pool(unexplained), MISSING),
        "unexplained_bytes": np.where(has_totals, per_pool(unexplained, moved[unexplained]), MISSING),
        "old_frees": per_pool(pool_blocks.unmatched),
        "old_freed_bytes": per_pool(pool_blocks.unmatched, -events.change[pool_blocks.unmatched]),
        "repeated_allocations": per_pool(pool_blocks.repeated),
        "resized_frees": per_pool(pool_blocks.resized),
        "without_address": per_pool(pool_blocks.placeless),
    }
    pools = np.flatnonzero(columns["events"])
    return pool_table(trace, events, pools, {name: values[pools] for name, values in columns.items()})


COLUMNS = (
    RANK,
    DEVICE_NAME,
    count("events", "Events"),
    count("unexplained_changes", "Unexplained changes", description="changes of the total that no event explains"),
    size("unexplained_bytes", "Unexplained"),
    count("old_frees", "Old frees", exact=True, description="frees of blocks that were allocated before the recording"),
    size("old_freed_bytes", "Old freed"),
    count("repeated_allocations", "Repeated allocations", exact=True, description="allocations at an address in use"),
    count("resized_frees", "Resized frees", exact=True, description="frees of a different size than the allocation"),
    count("without_address", "Without address"),
)

VIEW = View(
    name="memory_checks",
    title="Consistency of memory events",
    description="recorded memory events, and how many of them are inconsistent, such as frees without an allocation; "
    "columns of zeros are not shown in text",
    table=table,
    columns=COLUMNS,
    explain_empty=explain_empty,
    page=False,
)
