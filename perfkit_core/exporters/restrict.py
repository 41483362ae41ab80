"""A trace cut down to some of its steps, references between its rows kept."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core import nesting, schema
from perfkit_core.analyses.select import in_steps
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.schema import NO_ROW
from perfkit_core.trace import BoolArray, IntArray, Trace


def only_steps(trace: Trace, steps: tuple[int, ...] | None) -> Trace:
    """The events of these steps (all when None). Raises UsageError for a step that was not recorded."""
    return trace if steps is None else only_rows(trace, in_steps(trace, ViewRequest(steps=steps)))


def only_rows(trace: Trace, keep: BoolArray) -> Trace:
    """The rows where ``keep`` is true. An event whose parent goes hangs on the nearest one that stays."""
    parent, launched_by = trace.ints("parent"), trace.ints("launched_by")
    nearest = nesting.nearest_on_path(parent, keep)
    above = np.where(parent == NO_ROW, NO_ROW, nearest[parent])
    rows = np.flatnonzero(keep)
    number = np.full(len(trace) + 1, NO_ROW, np.int64)  # the last one: of no row
    number[rows] = np.arange(len(rows))
    events = trace.events.take(pa.array(rows))
    for name, values in (("parent", number[above[rows]]), ("launched_by", number[launched_by[rows]])):
        events = events.set_column(events.schema.get_field_index(name), schema.SCHEMA.field(name), pa.array(values))
    return Trace(events, msgspec.structs.replace(trace.meta, window_ns=_window(trace, rows)), trace.quality)


def _window(trace: Trace, rows: IntArray) -> tuple[int, int] | None:
    return (int(trace.ints("start_ns")[rows].min()), int(trace.end_ns[rows].max())) if len(rows) else None
