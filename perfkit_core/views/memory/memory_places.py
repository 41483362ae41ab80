"""View ``memory_places``: the memory of each device at the start, the peak and the end of the recording."""

from __future__ import annotations

import numpy as np
import pandas as pd

from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.trace.model.columns import DEVICE_NAME, POSITION, RANK, Column, count, share, size
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.memory import events as memory
from perfkit_core.views.memory.events import MISSING, memory_events
from perfkit_core.views.memory.memory import chosen, innermost, names
from perfkit_core.views.select import since_first_event


def table(trace: Trace, request: ViewRequest) -> pd.DataFrame:
    """Return one row per device, with :data:`COLUMNS`. Numbers that were not recorded are NA."""
    events, level = memory_events(trace), memory.levels(trace)
    counted = np.flatnonzero(chosen(trace, request, events.row, names(trace, innermost(trace, events.row), events.row)))
    pools = np.unique(events.pool[counted])
    process_peaks = memory.arguments(trace, events.row[counted], [["peak_allocated"], ["peak_reserved"]])
    bounds = np.searchsorted(events.pool[counted], pools[1:])  # events are sorted by pool
    rows, since = [], since_first_event(trace, events.row)
    columns = (counted, memory.counted_bytes(events)[counted], *process_peaks)
    parts = (np.split(values, bounds) for values in columns)  # without pools, zip ignores the one empty part
    for pool, at, change, peak_allocated, peak_reserved in zip(pools, *parts, strict=False):
        start, (position, peak) = memory.before(level, events, int(at[0])), memory.peak(level, events, at)
        history = not memory.states(trace)[pool]
        recorded = history and level.allocated[at[0]] != MISSING
        reserved = int(level.reserved[position]) if recorded and position >= events.first()[pool] else 0
        rows.append({
            "allocations": int((~events.reserve[at] & (change >= 0)).sum()),
            "frees": int((change < 0).sum()),
            "start_bytes": start if recorded else MISSING,
            "peak_bytes": peak if recorded else MISSING,
            "peak_time_ns": MISSING if not history else int(since[position]) if position >= events.first()[pool] else 0,
            "end_bytes": int(level.allocated[at[-1]]),
            "growth_bytes": int(change.sum()) if history else MISSING,
            "peak_growth_bytes": peak - start if history else MISSING,
            "peak_reserved_bytes": int(level.reserved[at].max()) if history else MISSING,
            # a reserve that does not contain all allocated memory, as on Paddle's CPU, says nothing
            "fragmentation_bytes": reserved - peak if history and reserved >= max(peak, 1) else MISSING,
            "process_peak_bytes": int(peak_allocated.max()),
            "process_peak_reserved_bytes": int(peak_reserved.max()),
        })  # fmt: skip
    every = [column.name for column in COLUMNS]
    measures = pd.DataFrame(rows, columns=[name for name in every[2:] if name != "fragmentation_ratio"])
    values = {str(name): measures[name].to_numpy(np.int64) for name in measures}
    result = memory.pool_table(trace, events, pools, values)
    unused = result["fragmentation_bytes"].astype("Float64")
    result["fragmentation_ratio"] = unused / (unused + result["peak_bytes"])
    return result[every]


COLUMNS = (
    RANK,
    DEVICE_NAME,
    count("allocations", "Allocations", exact=True),
    count("frees", "Frees", exact=True),
    size("start_bytes", "Start", description="total before the first event"),
    size("peak_bytes", "Peak", of_capture=True, description="highest total, including earlier allocations"),
    Column("peak_time_ns", "Peak time", "ns", POSITION, of_capture=True, description="time since the first event"),
    size("end_bytes", "End"),
    size("growth_bytes", "Growth", description="sum of the recorded changes"),
    size("peak_growth_bytes", "Peak growth", of_capture=True, description="peak less start"),
    size("peak_reserved_bytes", "Peak reserved", of_capture=True),
    size("fragmentation_bytes", "Unused reserve", of_capture=True, description="reserve at the peak, less the peak"),
    share("fragmentation_ratio", "Unused reserve", of_capture=True, description="share of the reserve at the peak"),
    size("process_peak_bytes", "Process peak", of_capture=True, description="peak since the process began"),
    size("process_peak_reserved_bytes", "Process peak reserved", of_capture=True),
)

VIEW = View(
    name="memory_places",
    title="Memory of each device",
    description="memory allocated on each device at the start, at the peak and at the end of the recording",
    table=table,
    columns=COLUMNS,
    explain_empty=memory.explain_empty,
    of_capture=memory.has_events,
)
