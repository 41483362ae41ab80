"""How did the allocated memory of each device change over time?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.model.columns import DEVICE_NAME, POSITION, RANK, STEP, Column, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.memory.events import (
    MISSING,
    counted_bytes,
    explain_empty,
    levels,
    memory_events,
    nullable,
    pool_columns,
)
from perfkit_core.views.memory.memory import chosen, innermost, names
from perfkit_core.views.select import since_first_event


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row an event, and one at time 0 for what was allocated before; see :data:`COLUMNS`."""
    found = memory_events(trace)
    counted = chosen(trace, request, found.row, names(trace, innermost(trace, found.row)))
    level = levels(trace)
    at = found.first()
    change, pool = counted_bytes(found), np.arange(len(at))
    unknown = np.full(len(at), MISSING)
    columns = {
        "time_ns": np.insert(since_first_event(trace, found.row), at, 0),
        "step": np.insert(trace.ints("step", MISSING)[found.row], at, MISSING),
        "change_bytes": np.insert(change, at, 0),
        "growth_bytes": np.insert(level.growth, at, 0),
        "allocated_bytes": np.insert(level.allocated, at, level.start),
        "reserved_bytes": np.insert(level.reserved, at, unknown),
        "unexplained_bytes": np.insert(level.unexplained, at, unknown),
    }
    measured = pd.DataFrame({name: nullable(values) for name, values in columns.items()})
    places = pd.DataFrame(pool_columns(trace, found, np.insert(found.pool, at, pool)))
    keep = np.insert(counted, at, _whole(request))
    return pd.concat([places, measured], axis=1)[keep].reset_index(drop=True)


def _whole(request: ViewRequest) -> bool:
    """The level before the recording is no event: it is shown where all events are."""
    return request.steps is None and request.pattern is None and request.device is None and request.kind is None


COLUMNS = (
    RANK,
    DEVICE_NAME,
    Column("time_ns", "Time", "ns", POSITION, description="since the first event of the rank"),
    STEP,
    size("change_bytes", "Change"),
    size("growth_bytes", "Growth", description="sum of the changes"),
    size("allocated_bytes", "Allocated", description="the recorded total"),
    size("reserved_bytes", "Reserved"),
    size("unexplained_bytes", "Unexplained", description="by how much the total moved without an event"),
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
