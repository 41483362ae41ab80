"""View ``memory_curve``: allocated and reserved memory of each device over time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, POSITION, RANK, STEP, Column, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory.events import MISSING, counted_bytes, explain_empty, levels, memory_events, pool_table
from perfkit_core.views.memory.memory import chosen, innermost, names
from perfkit_core.views.select import since_first_event


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per event, and a row at time 0 with the memory that was allocated before the recording."""
    events, level = memory_events(trace), levels(trace)
    counted = chosen(trace, request, events.row, names(trace, innermost(trace, events.row), events.row))
    # the row at time 0 is not an event: show it only without filters
    unfiltered = all(option is None for option in (request.steps, request.pattern, request.device, request.kind))
    at = events.first()
    unknown = np.full(len(at), MISSING)
    columns = {
        "time_ns": np.insert(since_first_event(trace, events.row), at, 0),
        "step": np.insert(trace.ints("step", MISSING)[events.row], at, MISSING),
        "change_bytes": np.insert(counted_bytes(events), at, 0),
        "growth_bytes": np.insert(level.growth, at, 0),
        "allocated_bytes": np.insert(level.allocated, at, level.start),
        "reserved_bytes": np.insert(level.reserved, at, unknown),
        "unexplained_bytes": np.insert(level.unexplained, at, unknown),
    }
    result = pool_table(trace, events, np.insert(events.pool, at, np.arange(len(at))), columns)
    return result[np.insert(counted, at, unfiltered)].reset_index(drop=True)


COLUMNS = (
    RANK,
    DEVICE_NAME,
    Column("time_ns", "Time", "ns", POSITION, description="time since the rank's first event"),
    STEP,
    size("change_bytes", "Change"),
    size("growth_bytes", "Growth", description="sum of all changes so far"),
    size("allocated_bytes", "Allocated", description="recorded total"),
    size("reserved_bytes", "Reserved"),
    size("unexplained_bytes", "Unexplained", description="change of the total that no event explains"),
)

VIEW = View(
    name="memory_curve",
    title="Memory over time",
    description="allocated and reserved memory of each device after every allocation and free",
    table=table,
    columns=COLUMNS,
    explain_empty=explain_empty,
    page=False,
)
