"""Assembly of recorded columns into the event table: order, nesting, launch links, steps, phases, modules. Sources
record what their files contain; everything derived from it is computed here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from msgspec import structs

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray, constant, texts, to_int64
from perfkit_core.assembly import layers, links, steps
from perfkit_core.assembly.draft import EXTERNAL, RECORDED_TYPES, DraftColumns, Recorded, arranged, by_time
from perfkit_core.model import schema
from perfkit_core.model.meta import Finding, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.runtime import parallel

OperatorNames = Callable[[str], str | None]
"""Native operator name → canonical name, None where unknown (hook ``perfkit_operator_names``)."""


def assemble(
    recorded: Recorded,
    meta: TraceMeta,
    quality: tuple[Finding, ...] = (),
    rank: int | None = None,
    operator_names: OperatorNames | None = None,
) -> Trace:
    """Return the finished Trace. Findings about missing steps, launches and phases are added to ``quality``."""
    draft, parent = _draft(recorded, meta, rank)
    external = draft.ints(EXTERNAL)
    no_step = steps.empty_last_step(draft)
    if len(no_step):
        kinds = draft.codes("kind")
        values = [*kinds.values, *({schema.OTHER} - set(kinds.values))]
        codes = kinds.codes.copy()
        codes[no_step] = values.index(schema.OTHER)
        draft = draft.with_columns(kind=pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string())))
    draft, findings = _linked(draft, external, parent, operator_names)
    (phase, phase_findings), module = parallel.both(
        lambda: steps.assign_phases(draft), lambda: layers.assign(draft), len(draft)
    )
    draft = draft.with_columns(phase=phase, module=module)
    if not meta.window_ns and len(draft):
        meta = structs.replace(meta, window_ns=(int(draft.ints("start_ns").min()), int(draft.end_ns.max())))
    return Trace(draft.events, meta, quality + findings + phase_findings)


def _linked(
    draft: Trace, external: IntArray, parent: IntArray | None, operator_names: OperatorNames | None
) -> tuple[Trace, tuple[Finding, ...]]:
    def named_tree() -> tuple[IntArray, IntArray, pa.ChunkedArray]:
        return *links.nested(draft, parent), _op_names(draft, operator_names)

    def linked() -> tuple[Trace, tuple[Finding, ...]]:
        launched_by, launch_findings = links.launches(draft, external)
        with_launches = draft.with_columns(launched_by=pa.array(launched_by))
        step, step_findings = steps.assign_steps(with_launches)
        return with_launches.with_ints(step=step), launch_findings + step_findings

    (parents, self_ns, op_name), (trace, findings) = parallel.both(named_tree, linked, len(draft))
    return trace.with_columns(parent=pa.array(parents), op_name=op_name).with_ints(self_ns=self_ns), findings


def _draft(recorded: Recorded, meta: TraceMeta, rank: int | None) -> tuple[Trace, IntArray | None]:
    """Return the events in the order of the table, with unrecorded columns null (row references: -1), and the recorded
    parents."""
    columns, parent = recorded.taken(), recorded.parent
    count = len(columns["start_ns"])
    order = by_time(*(to_int64(columns[name].chunks, count, 0) for name in ("start_ns", "dur_ns")))
    known = [name for name, column in columns.items() if name in RECORDED_TYPES and column.null_count < count]
    held = arranged(columns, {name: RECORDED_TYPES[name] for name in known}, order)
    if parent is not None and order is not None:
        parent = nesting.renumbered(parent, order)
    elif parent is not None:  # a parent must precede its child
        parent = np.where(parent < np.arange(len(parent)), parent, NO_ROW)
    return Trace(DraftColumns(count, held, rank), meta), parent


def _op_names(trace: Trace, operator_names: OperatorNames | None) -> pa.ChunkedArray:
    """Return the canonical name of each operator. Each distinct native name is looked up once."""
    if operator_names is None:
        return constant(None, schema.SCHEMA.field("op_name").type, len(trace))
    names, kinds = trace.codes("name"), trace.rows("kind", *schema.OPERATOR_KINDS)
    used = np.zeros(len(names.values) + 1, np.bool_)
    used[names.codes[kinds]] = True  # the last cell is for nulls
    canonical = {int(code): operator_names(names.values[code]) for code in np.flatnonzero(used[:-1])}
    values = list(dict.fromkeys(name for name in canonical.values() if name is not None))
    number = np.full(len(names.values), -1, np.int32)
    for code, name in canonical.items():
        number[code] = -1 if name is None else values.index(name)
    return texts(np.where(kinds, names.lookup(number, -1), -1), values)
