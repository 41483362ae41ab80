"""How much memory did each device hold: before, at the peak, at the end?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.model.columns import DEVICE_NAME, POSITION, RANK, Column, count, size
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.views.memory.events import (
    MISSING,
    Levels,
    MemoryEvents,
    arguments,
    before,
    explain_empty,
    has_events,
    levels,
    memory_events,
    nullable,
    peak,
    pool_columns,
)
from perfkit_core.views.memory.memory import chosen, innermost, names
from perfkit_core.views.select import since_first_event


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """One row a device; see :data:`COLUMNS`. NA: not recorded."""
    found = memory_events(trace)
    counted = chosen(trace, request, found.row, names(trace, innermost(trace, found.row)))
    pools = np.unique(found.pool[counted])
    level = levels(trace)
    at = np.flatnonzero(counted)
    peaks = arguments(trace, found.row[at], [["peak_allocated"], ["peak_reserved"]])
    ends = np.searchsorted(found.pool[at], pools[1:])  # events are sorted by pool
    parts = zip(*(np.split(values, ends) for values in (at, *peaks)), strict=True)
    rows = [_pool(trace, found, level, *part) for part in parts if len(part[0])]
    measures = {name: nullable(np.array([row[name] for row in rows], np.int64)) for name in _MEASURES}
    return pd.DataFrame({**pool_columns(trace, found, pools), **measures})


_MEASURES = (
    "allocations", "frees", "start_bytes", "peak_bytes", "peak_time_ns", "end_bytes", "growth_bytes",
    "peak_growth_bytes", "peak_reserved_bytes", "process_peak_bytes", "process_peak_reserved_bytes",
)  # fmt: skip


def _pool(
    trace: Trace, found: MemoryEvents, level: Levels, at: IntArray, peak_allocated: IntArray, peak_reserved: IntArray
) -> dict[str, int]:
    """Of the events at some positions, all of one pool."""
    change = np.where(found.reserve[at], 0, found.change[at])
    start, (position, most) = before(level, found, int(at[0])), peak(level, found, at)
    told = level.allocated[at[0]] != MISSING
    since = since_first_event(trace, found.row[position : position + 1])
    return {
        "allocations": int((~found.reserve[at] & (change >= 0)).sum()),
        "frees": int((change < 0).sum()),
        "start_bytes": start if told else MISSING,
        "peak_bytes": most if told else MISSING,
        "peak_time_ns": int(since[0]) if position >= found.first()[found.pool[at[0]]] else 0,
        "end_bytes": int(level.allocated[at[-1]]),
        "growth_bytes": int(change.sum()),
        "peak_growth_bytes": most - start,
        "peak_reserved_bytes": int(level.reserved[at].max()),
        "process_peak_bytes": int(peak_allocated.max()),
        "process_peak_reserved_bytes": int(peak_reserved.max()),
    }


COLUMNS = (
    RANK,
    DEVICE_NAME,
    count("allocations", "Allocations", exact=True),
    count("frees", "Frees", exact=True),
    size("start_bytes", "Start", description="allocated before the first event"),
    size("peak_bytes", "Peak", of_capture=True, description="with what was allocated before"),
    Column("peak_time_ns", "Peak time", "ns", POSITION, of_capture=True, description="since the rank's first event"),
    size("end_bytes", "End"),
    size("growth_bytes", "Growth", description="by the events alone"),
    size("peak_growth_bytes", "Peak growth", of_capture=True, description="peak less start"),
    size("peak_reserved_bytes", "Peak reserved", of_capture=True),
    size("process_peak_bytes", "Process peak", of_capture=True, description="since the process began"),
    size("process_peak_reserved_bytes", "Process peak reserved", of_capture=True),
)

VIEW = View(
    name="memory_places",
    title="Memory of each device",
    description=(
        "what was allocated on each device at the start, the peak and the end of the recording; growth: by the events "
        "alone; process peak: since the process began"
    ),
    table=table,
    columns=COLUMNS,
    explain_empty=explain_empty,
    of_capture=has_events,
)
