"""From recorded columns to the event table: order, nesting, launch links, steps, phases, modules.

A source records what its file says; everything that has to be worked out is worked out here, once, for every source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from msgspec import structs

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray, constant, texts, to_int64
from perfkit_core.assembly import layers, links, phases, steps, threads
from perfkit_core.assembly import order as ordering
from perfkit_core.assembly.draft import EXTERNAL, RECORDED_TYPES, DraftColumns
from perfkit_core.model import schema
from perfkit_core.model.meta import Finding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.runtime import parallel

OperatorNames = Callable[[str], str | None]
"""Native operator name → canonical name, None where unknown (hook ``perfkit_operator_names``)."""


@dataclass(slots=True)
class Recorded:
    """Events as recorded, any order. Whoever assembles them takes them: they are in memory once.

    ``columns`` has those columns of the schema that the source knows (name, kind, start_ns, dur_ns, device at least;
    ``step`` filled on step events, ``phase`` on events that mark a phase), and may have ``external``: an id that an
    operator shares with its launches and device work, and ``layer``: what the call of a layer adds to the path of the
    calls around it. ``parent`` is the recorded parent row of each row (-1: none),
    where the source holds a tree; else it is rebuilt from the times.
    """

    columns: pa.Table
    parent: IntArray | None = None

    def taken(self) -> dict[str, pa.ChunkedArray]:
        """The columns by name, which are not here then: memory is free as soon as the taker forgets one."""
        held = dict(zip(self.columns.column_names, self.columns.columns, strict=True))
        self.columns = self.columns.schema.empty_table()
        return held


def assemble(
    recorded: Recorded,
    meta: TraceMeta,
    quality: tuple[Finding, ...] = (),
    rank: int | None = None,
    operator_names: OperatorNames | None = None,
) -> Trace:
    """The finished Trace. Findings about missing steps, launches and phases are added to ``quality``."""
    draft, external, parent = _in_order(recorded, meta, rank)
    draft = _cut_off(draft)
    draft, findings = _worked_out(draft, external, parent, operator_names)
    (phase, phase_findings), module = parallel.both(
        lambda: phases.assign(draft), lambda: layers.assign(draft), len(draft)
    )
    draft = draft.with_columns(phase=phase, module=module)
    meta = structs.replace(meta, window_ns=meta.window_ns or _extent(draft))
    return Trace(draft.events, meta, quality + findings + phase_findings)


def _worked_out(
    draft: Trace, external: IntArray, recorded_parent: IntArray | None, operator_names: OperatorNames | None
) -> tuple[Trace, tuple[Finding, ...]]:
    """With what the events say of each other: the tree, and the names of operators; beside it launches and steps."""

    def named_tree() -> tuple[IntArray, IntArray, pa.ChunkedArray]:
        return *threads.nested(draft, recorded_parent), _op_names(draft, operator_names)

    def linked() -> tuple[Trace, tuple[Finding, ...]]:
        launched_by, launch_findings = links.launches(draft, external)
        found = draft.with_columns(launched_by=pa.array(launched_by))
        step, step_findings = steps.assign(found)
        return found.with_ints(step=step), launch_findings + step_findings

    (parent, self_ns, op_name), (found, findings) = parallel.both(named_tree, linked, len(draft))
    return found.with_columns(parent=pa.array(parent), op_name=op_name).with_ints(self_ns=self_ns), findings


def _extent(trace: Trace) -> tuple[int, int] | None:
    return (int(trace.ints("start_ns").min()), int(trace.end_ns.max())) if len(trace) else None


def _in_order(recorded: Recorded, meta: TraceMeta, rank: int | None) -> tuple[Trace, IntArray, IntArray | None]:
    """The events in the order of the table, columns of the schema that the source lacks null (row references: -1);
    the ids of operators that they share with launches, and the recorded parents."""
    columns = recorded.taken()
    count = len(columns["start_ns"])
    order = ordering.by_time(*(_ints(columns[name]) for name in ("start_ns", "dur_ns")))
    known = [name for name, column in columns.items() if name in RECORDED_TYPES and column.null_count < count]
    held = ordering.arranged(columns, {name: RECORDED_TYPES[name] for name in known}, order)
    whole = Trace(DraftColumns(count, held, rank), meta)
    parent = recorded.parent
    return whole, whole.ints(EXTERNAL), parent if parent is None else _renumbered(parent, order)


def _renumbered(parent: IntArray, order: IntArray | None) -> IntArray:
    """Recorded parents as rows of the table; one that does not stand before its child is none."""
    if order is not None:
        return nesting.renumbered(parent, order)
    return np.where(parent < np.arange(len(parent)), parent, NO_ROW)


def _ints(column: pa.ChunkedArray) -> IntArray:
    return to_int64(column.chunks, len(column), 0)


def _cut_off(trace: Trace) -> Trace:
    """A last step in which nothing took place is no step."""
    rows = steps.empty_last_step(trace)
    if not len(rows):
        return trace
    kinds = trace.codes("kind")
    values = [*kinds.values, *({schema.OTHER} - set(kinds.values))]
    codes = kinds.codes.copy()
    codes[rows] = values.index(schema.OTHER)
    return trace.with_columns(kind=pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string())))


def _op_names(trace: Trace, operator_names: OperatorNames | None) -> pa.ChunkedArray:
    """The canonical name of each operator; asked for once a distinct name."""
    of_type = schema.SCHEMA.field("op_name").type
    if operator_names is None:
        return constant(None, of_type, len(trace))
    names, kinds = trace.codes("name"), trace.rows("kind", *schema.OPERATOR_KINDS)
    used = np.zeros(len(names.values) + 1, np.bool_)
    used[names.codes[kinds]] = True  # names of operators; the last cell is for nulls
    canonical = {int(code): operator_names(names.values[code]) for code in np.flatnonzero(used[:-1])}
    values = list(dict.fromkeys(name for name in canonical.values() if name is not None))
    number = np.full(len(names.values), -1, np.int32)
    for code, name in canonical.items():
        number[code] = -1 if name is None else values.index(name)
    return texts(np.where(kinds, names.lookup(number, -1), -1), values)
