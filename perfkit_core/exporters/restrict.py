"""A trace cut down to some of its steps, references between its rows kept."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, BoolArray, IntArray
from perfkit_core.language.messages import message
from perfkit_core.model import schema
from perfkit_core.model.meta import Finding
from perfkit_core.model.schema import DEVICE_WORK
from perfkit_core.model.trace import Trace
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.select import in_steps, span
from perfkit_core.views.steps.activity import covered_ns


def only_steps(trace: Trace, steps: tuple[int, ...] | None) -> Trace:
    """The events of these steps (all when None), and what else runs on the devices meanwhile: that has no launch here,
    as its launch is of another step. Raises UsageError for a step that was not recorded."""
    if steps is None:
        return trace
    chosen = in_steps(trace, ViewRequest(steps=steps))
    others = _runs_meanwhile(trace, chosen) & ~chosen
    kept = only_rows(_of_no_step(trace, others), chosen | others)
    if not others.any():
        return kept
    text = message(
        "{count} pieces of device work that run in these steps were not launched in them: here they have no launch, "
        "and are in no operator, step or phase",
        count=int(others.sum()),
    )
    return kept.with_findings(Finding("launched-outside-steps", text))


def _runs_meanwhile(trace: Trace, chosen: BoolArray) -> BoolArray:
    """True for work of a device that runs, wholly or in part, in the chosen steps of its rank, shape (rows,)."""
    rank, found = trace.ints("rank"), np.zeros(len(trace), np.bool_)
    work = np.flatnonzero(trace.rows("kind", *DEVICE_WORK))
    for one in np.unique(rank[work]).tolist():
        mine = work[rank[work] == one]
        window = span(trace, chosen & (rank == one))
        found[mine] = covered_ns(window, trace.ints("start_ns")[mine], trace.end_ns[mine]) > 0
    return found


def _of_no_step(trace: Trace, rows: BoolArray) -> Trace:
    """The trace with what a launch tells taken from some of its rows."""
    told = {name: pc.if_else(pa.array(~rows), trace.column(name), None) for name in ("step", "phase", "module")}
    return trace.with_columns(**told) if rows.any() else trace


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
