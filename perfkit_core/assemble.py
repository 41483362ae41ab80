"""From recorded columns to the event table: order, nesting, launch links, steps, phases, modules.

A source records what its file says; everything that has to be worked out is worked out here, once, for every source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from perfkit_core import nesting, schema
from perfkit_core.assembly import links, phases, steps
from perfkit_core.layers import modules
from perfkit_core.schema import NESTED_KINDS, NO_ROW
from perfkit_core.trace import Finding, IntArray, Trace, TraceMeta

OperatorNames = Callable[[str], str | None]
"""Native operator name → canonical name, None where unknown (hook ``perfkit_operator_names``)."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Events as recorded, any order.

    ``columns`` has those columns of the schema that the source knows (name, kind, start_ns, dur_ns, device at least;
    ``step`` filled on step events, ``phase`` on events that mark a phase), and may have ``external``: an id that an
    operator shares with its launches and device work, and ``layer``: what the call of a layer adds to the path of the
    calls around it. ``parent`` is the recorded parent row of each row (-1: none),
    where the source holds a tree; else it is rebuilt from the times.
    """

    columns: pa.Table
    parent: IntArray | None = None


def assemble(
    recorded: Recorded,
    meta: TraceMeta,
    quality: tuple[Finding, ...] = (),
    rank: int | None = None,
    operator_names: OperatorNames | None = None,
) -> Trace:
    """The finished Trace. Findings about missing steps, launches and phases are added to ``quality``."""
    recorded = _sorted(recorded)
    draft = Trace(_conform(recorded.columns, rank), meta)
    draft = _nested(_cut_off(draft), recorded.parent)
    external = _external(recorded.columns)
    launched_by, launch_findings = links.launches(draft, external)
    draft = _with(draft, launched_by=pa.array(launched_by))
    step, step_findings = steps.assign(draft)
    draft = _with(draft, step=_nullable(step))
    phase, phase_findings = phases.assign(draft)
    module = modules.assign(draft, recorded.columns)
    draft = _with(draft, phase=phase, module=module, op_name=_op_names(draft, operator_names))
    meta = structs.replace(meta, window_ns=meta.window_ns or _extent(draft))
    return Trace(draft.events, meta, quality + launch_findings + step_findings + phase_findings)


def _extent(trace: Trace) -> tuple[int, int] | None:
    return (int(trace.ints("start_ns").min()), int(trace.end_ns.max())) if len(trace) else None


def _sorted(recorded: Recorded) -> Recorded:
    """By start, longest first: parents come before their children, so tree algorithms are one pass."""
    start = recorded.columns["start_ns"].to_numpy()
    order = np.lexsort((-recorded.columns["dur_ns"].to_numpy(), start))
    if recorded.parent is None:
        return Recorded(recorded.columns.take(pa.array(order)))
    row = np.empty(len(order), np.int64)
    row[order] = np.arange(len(order))
    parent = recorded.parent[order]
    parent = np.where(parent == NO_ROW, NO_ROW, row[parent])
    return Recorded(recorded.columns.take(pa.array(order)), np.where(parent < np.arange(len(order)), parent, NO_ROW))


def _conform(columns: pa.Table, rank: int | None) -> pa.Table:
    """The columns of the schema in its order; those that the source lacks are null (rows references: -1)."""
    count, arrays = columns.num_rows, []
    for column in schema.COLUMNS:
        if column.name in columns.column_names:
            arrays.append(_cast(columns[column.name], column.type))
        elif column.name == "rank":
            arrays.append(pa.nulls(count, pa.int32()) if rank is None else pa.array(np.full(count, rank, np.int32)))
        elif not column.nullable:
            arrays.append(pa.array(np.full(count, NO_ROW, np.int64)))
        else:
            arrays.append(pa.nulls(count, column.type))
    return pa.Table.from_arrays(arrays, schema=schema.SCHEMA)


def _cast(column: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(to) and not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    return column.cast(to)


def _cut_off(trace: Trace) -> Trace:
    """A last step in which nothing took place is no step."""
    rows = steps.empty_last_step(trace)
    if not len(rows):
        return trace
    mask = np.zeros(len(trace), np.bool_)
    mask[rows] = True
    kind = trace.events["kind"].cast(pa.string()).combine_chunks()
    replaced = pc.if_else(pa.array(mask), schema.OTHER, kind)
    return _with(trace, kind=replaced.dictionary_encode().cast(schema.SCHEMA.field("kind").type))


def _external(columns: pa.Table) -> IntArray:
    if "external" not in columns.column_names:
        return np.full(columns.num_rows, -1, np.int64)
    ids: IntArray = pc.fill_null(columns["external"], -1).to_numpy()
    return ids


def _nested(trace: Trace, recorded_parent: IntArray | None) -> Trace:
    """Fill parent and self_ns. Events that occupy a host thread nest; memory events lie in them."""
    occupies = trace.host & trace.rows("kind", *NESTED_KINDS)
    inside = occupies | trace.rows("kind", schema.MEMORY)
    rows = np.flatnonzero(inside & (trace.ints("tid", NO_ROW) != NO_ROW))
    start, end = trace.ints("start_ns")[rows], trace.end_ns[rows]
    if recorded_parent is None:
        inner = nesting.nest(_threads(trace)[rows], start, end)
    else:
        inner = _inner(recorded_parent, rows, len(trace))
    parent = np.full(len(trace), NO_ROW, np.int64)
    parent[rows] = np.where(inner == NO_ROW, NO_ROW, rows[inner])
    self_ns = np.full(len(trace), -1, np.int64)
    self_ns[rows] = np.where(occupies[rows], nesting.self_times(inner, start, end), -1)
    return _with(trace, parent=pa.array(parent), self_ns=_nullable(self_ns))


def _inner(parent: IntArray, rows: IntArray, count: int) -> IntArray:
    """Recorded parents as positions within ``rows``; a parent that does not nest is skipped for the one above it."""
    position = np.full(count + 1, NO_ROW, np.int64)
    position[rows] = np.arange(len(rows))
    nested = position[:count] != NO_ROW
    nearest = nesting.nearest_on_path(parent, nested)
    above = np.where(parent == NO_ROW, NO_ROW, nearest[parent])
    return position[above[rows]]


def _threads(trace: Trace) -> IntArray:
    """One key for each (pid, tid)."""
    pid, tid = trace.ints("pid"), trace.ints("tid")
    _, pid_code = np.unique(pid, return_inverse=True)
    _, tid_code = np.unique(tid, return_inverse=True)
    key: IntArray = pid_code.astype(np.int64) * (int(tid_code.max(initial=0)) + 1) + tid_code
    return key


def _op_names(trace: Trace, operator_names: OperatorNames | None) -> pa.Array:
    names, kinds = trace.codes("name"), trace.rows("kind", *schema.OPERATOR_KINDS)
    if operator_names is None:
        return pa.nulls(len(trace), schema.SCHEMA.field("op_name").type)
    used = np.zeros(len(names.values), np.bool_)
    used[names.codes[kinds]] = True
    canonical = [operator_names(value) if used[i] else None for i, value in enumerate(names.values)]
    values = pa.array(canonical, pa.string()).take(pa.array(np.where(kinds, names.codes, 0)))
    return pc.if_else(pa.array(kinds), values, None).dictionary_encode().cast(schema.SCHEMA.field("op_name").type)


def _nullable(values: IntArray) -> pa.Array:
    """Negative is null."""
    return pa.array(values, mask=values < 0)


def _with(trace: Trace, **columns: pa.Array) -> Trace:
    """The trace with some columns replaced."""
    events = trace.events
    for name, values in columns.items():
        field = schema.SCHEMA.field(name)
        events = events.set_column(events.schema.get_field_index(name), field, values)
    return Trace(events, trace.meta, trace.quality)
