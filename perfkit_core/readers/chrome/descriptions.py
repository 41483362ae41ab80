"""What the names and arguments of events describe: collectives and the steps of inference servers. The dialect of the
framework understands them; the facts go into side tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import Codes, IntArray, picked, to_codes
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.assembly.labels import with_sizes
from perfkit_core.trace.model import collective, schema, serving_step
from perfkit_core.trace.model.collective import Collective
from perfkit_core.trace.model.serving_step import ServingStep

if TYPE_CHECKING:
    from perfkit_core.readers.chrome.dialect import Dialect

_MAX_CACHED: Final = 1 << 12


def described(recorded: RecordedEvents, dialect: Dialect) -> RecordedEvents:
    """Return the events with side tables of the collectives and server steps that they describe. The column ``bytes``
    gets the size of a message if none was recorded."""
    columns = recorded.columns
    if not columns.num_rows:
        return recorded
    names, kinds = (Codes(*to_codes(columns[name].chunks, columns.num_rows)) for name in ("name", "kind"))
    recorded = _with_server_steps(recorded, dialect, names, kinds)
    rows = _communicating(dialect, names, kinds)
    return _with_collectives(recorded, dialect, rows) if len(rows) else recorded


def _with_server_steps(recorded: RecordedEvents, dialect: Dialect, names: Codes, kinds: Codes) -> RecordedEvents:
    # the framework numbers its own steps
    columns = recorded.columns
    unnumbered = columns["step"].is_null() if "step" in columns.column_names else pa.array([True] * len(columns))
    ranges = np.flatnonzero(kinds.rows(schema.STEP) & np.asarray(unnumbered))
    of_name: dict[int, ServingStep | None] = {}
    rows, steps = [], []
    for row, code in zip(ranges.tolist(), names.codes[ranges].tolist(), strict=True):
        if code not in of_name:
            of_name[code] = dialect.serving_step(names.values[code] if code >= 0 else "")
        step = of_name[code]
        if step is not None and step.plausible:
            rows.append(row)
            steps.append(step)
    table = serving_step.TABLE
    return recorded.with_facts(table, table.of_structs(steps, row=rows)) if steps else recorded


def _communicating(dialect: Dialect, names: Codes, kinds: Codes) -> IntArray:
    """Return the rows whose name and kind may be those of a collective."""
    width = len(kinds.values) + 1  # the last kind is null
    pair = names.codes.astype(np.int64) * width + np.where(kinds.codes < 0, width - 1, kinds.codes)
    occurs = np.zeros((len(names.values) + 1) * width, np.bool_)
    occurs[pair] = True  # a missing name counts from the end
    for at in np.flatnonzero(occurs).tolist():
        name, kind = divmod(at, width)
        texts = [values[number] if number < len(values) else ""
                 for values, number in ((names.values, name), (kinds.values, kind))]  # fmt: skip
        occurs[at] = dialect.communicates(*texts)
    return np.flatnonzero(occurs[pair])


def _with_collectives(recorded: RecordedEvents, dialect: Dialect, rows: IntArray) -> RecordedEvents:
    columns = recorded.columns
    cells = [
        picked(columns[name], rows).to_pylist() if name in columns.column_names else [None] * len(rows)
        for name in ("name", "args", "shapes", "dtypes")
    ]
    descriptions: dict[tuple[str | None, ...], tuple[Collective | None, int]] = {}
    sizes, described_rows, collectives = np.full(len(rows), -1, np.int64), [], []
    for at, (name, *arguments) in enumerate(zip(*cells, strict=True)):
        key = (name, *arguments)
        if key not in descriptions:
            if len(descriptions) >= _MAX_CACHED:
                descriptions.clear()
            fact, size = dialect.described(name or "", *arguments)
            descriptions[key] = None if fact is None else _fitting(fact), size if size < 2**63 else -1
        fact, sizes[at] = descriptions[key]
        if fact is not None:
            described_rows.append(int(rows[at]))
            collectives.append(fact)
    if (sizes >= 0).any():
        recorded = with_sizes(recorded, rows, sizes)
    return recorded.with_facts(collective.TABLE, collective.TABLE.of_structs(collectives, row=described_rows))


def _fitting(fact: Collective) -> Collective:
    """Return a collective without numbers that do not fit in 64 bits."""
    large: dict[str, Any] = {
        name: None
        for name in fact.__struct_fields__
        if isinstance(value := getattr(fact, name), int) and not -(2**63) <= value < 2**63
    }
    return msgspec.structs.replace(fact, **large) if large else fact
