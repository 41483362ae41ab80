"""The recorded columns of a trace before assembly, and the order of the event table.

Events are sorted by start. Events with equal starts are sorted by descending duration, then by recorded order. Parents
therefore precede their children, and algorithms on trees need only one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import nesting
from perfkit_core.base.algorithms.addresses import reordered
from perfkit_core.base.algorithms.arrays import (
    BLOCK,
    NO_ROW,
    OFFSETS_END,
    IntArray,
    constant,
    joined,
    nullable,
    texts,
    to_codes,
    to_int64,
)
from perfkit_core.base.runtime import parallel
from perfkit_core.trace.model import account, schema, side_tables
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.event_columns import ROW_REFERENCES, Columns
from perfkit_core.trace.model.side_table import SideTable
from perfkit_core.trace.model.side_tables import SideTables
from perfkit_core.trace.model.trace import Trace

EXTERNAL: Final = "external"
"""Name of the column with the id that an operator shares with its launches and device work."""
LAYER: Final = "layer"
"""Name of the column with the last part of a layer's module path, for example ``Conv2d_3``."""
FRAME, CALLER = "frame", "caller"
"""Names of the columns with the number of a Python frame, and the number of the frame that called it."""
RECORDED_TYPES: Final[Mapping[str, pa.DataType]] = {
    **{column.name: column.type for column in schema.COLUMNS},
    EXTERNAL: pa.int64(),
    LAYER: schema.SCHEMA.field("module").type,
}
"""Types of the columns that a source may record, by name."""
_SLICE: Final = 1 << 20
"""Number of rows per array if the texts do not fit into one array."""


@dataclass(slots=True)
class RecordedEvents:
    """Recorded events in any order. Assembly moves the columns out, so that memory holds only one copy of them.

    - ``columns`` must contain name, kind, start_ns, dur_ns and device. Step events need a ``step``, and events that
      mark a phase need a ``phase``. Other columns of RECORDED_TYPES are optional, and so are FRAME and CALLER.
    - ``parent`` has the row of each row's parent, or -1. If it is None, parents are computed from the times.
    - ``tables`` has side tables, whose rows are rows of ``columns``.
    """

    columns: pa.Table
    parent: IntArray | None = None
    tables: SideTables = field(default_factory=SideTables)

    def pop_columns(self) -> dict[str, pa.ChunkedArray]:
        """Return the columns by name, and remove them from this object. The caller frees a column by dropping it."""
        columns = dict(zip(self.columns.column_names, self.columns.columns, strict=True))
        self.columns = self.columns.schema.empty_table()
        return columns

    def with_facts(self, declared: SideTable, table: pa.Table) -> RecordedEvents:
        """Return the events with rows added to a side table."""
        before = self.tables[declared.name]
        if len(before):
            table = pa.concat_tables([before, table]).unify_dictionaries()
        if declared.describes_rows:
            table = side_tables.renumbered(table, lambda rows: rows)
        return replace(self, tables=self.tables.replaced({declared.name: table}))

    def with_account(self, entries: Sequence[ReadEvents]) -> RecordedEvents:
        """Return the events with entries added to the account of events that are no rows."""
        return self.with_facts(account.TABLE, account.to_table(entries)) if entries else self

    def without(self, rows: IntArray) -> RecordedEvents:
        """Return all events but those of ``rows``."""
        if not len(rows):
            return self
        remains = np.ones(self.columns.num_rows, np.bool_)
        remains[rows] = False
        mask, count = pa.array(remains), int(np.count_nonzero(remains))
        columns = {
            name: constant(None, column.type, count) if column.null_count == len(column) else column.filter(mask)
            for name, column in zip(self.columns.column_names, self.columns.columns, strict=True)
        }
        return self._renumbered(np.flatnonzero(remains), pa.table(columns))  # Arrow filters a table more slowly

    def taken(self, rows: IntArray) -> RecordedEvents:
        """Return the events of ``rows``, which has no duplicates, in this order."""
        return self._renumbered(rows, self.columns.take(pa.array(rows)))

    def _renumbered(self, rows: IntArray, columns: pa.Table) -> RecordedEvents:
        new_row = np.full(self.columns.num_rows + 1, NO_ROW)
        new_row[rows] = np.arange(len(rows))
        parent = None if self.parent is None else new_row[self.parent[rows]]
        return RecordedEvents(columns, parent, self.tables.renumbered(new_row.take))


def integers(columns: pa.Table, name: str) -> IntArray:
    """Return an integer column, read-only, shape (rows,), with -1 for null, and for all rows if it is missing."""
    if name not in columns.column_names:
        return np.full(columns.num_rows, NO_ROW)
    return to_int64(columns[name].chunks, columns.num_rows, NO_ROW)


def with_integers(columns: pa.Table, name: str, values: IntArray) -> pa.Table:
    """Return the table with an integer column. Negative values become null."""
    column = nullable(values)
    at = columns.schema.get_field_index(name)
    return columns.set_column(at, name, column) if at >= 0 else columns.append_column(name, column)


def with_cells(columns: pa.Table, name: str, rows: IntArray, cells: pa.Array) -> pa.Table:
    """Return the table with new values in ``rows`` of a column, which is added if it is missing. ``rows`` ascend."""
    at, of_type = columns.schema.get_field_index(name), RECORDED_TYPES[name]
    column = columns.column(at) if at >= 0 else constant(None, of_type, columns.num_rows)
    if pa.types.is_dictionary(of_type):
        codes, values = to_codes(column.chunks, columns.num_rows)
        other, others = to_codes([cells], len(cells))
        number = {value: code for code, value in enumerate(values)}
        new_code = np.array([*(number.setdefault(value, len(number)) for value in others), NO_ROW], np.int32)
        codes = codes.copy()
        codes[rows] = new_code[other]
        column = texts(codes, list(number))
    else:
        mask = np.zeros(columns.num_rows, np.bool_)
        mask[rows] = True
        column = pc.replace_with_mask(column, pa.array(mask), cells.cast(of_type))
    return columns.set_column(at, name, column) if at >= 0 else columns.append_column(name, column)


@dataclass(frozen=True, slots=True)
class DraftColumns(Columns):
    """The columns of an event table before assembly. ``recorded`` has the recorded columns. All other columns are
    constant: ``rank`` in the column rank, -1 in the columns parent and launched_by, null in the rest."""

    count: int
    recorded: Mapping[str, pa.ChunkedArray]
    rank: int | None

    @property
    def num_rows(self) -> int:
        return self.count

    def has_values(self, name: str) -> bool:
        return name in self.recorded or self._default(name) is not None

    def column(self, name: str) -> pa.ChunkedArray:
        column = self.recorded.get(name)
        return constant(self._default(name), RECORDED_TYPES[name], self.num_rows) if column is None else column

    def _default(self, name: str) -> int | None:
        if name == "rank":
            return self.rank
        return NO_ROW if name in ROW_REFERENCES else None


def by_time(start_ns: IntArray, dur_ns: IntArray) -> IntArray | None:
    """Return the row numbers, sorted as the event table requires, shape (rows,). None if they are already sorted."""
    falls = start_ns[1:] < start_ns[:-1]
    ties = start_ns[1:] == start_ns[:-1]
    if not falls.any() and not (ties & (dur_ns[1:] > dur_ns[:-1])).any():
        return None
    order = np.argsort(start_ns, kind="stable")  # merge sort is fast here, because long runs of rows are already sorted
    tied = np.zeros(len(order) + 1, np.bool_)
    for begin in range(0, len(order), BLOCK):  # in blocks, because all start times do not fit into the cache
        ordered = start_ns[order[begin : begin + BLOCK + 1]]
        np.equal(ordered[1:], ordered[:-1], out=tied[begin + 1 : begin + len(ordered)])
    at = np.flatnonzero(tied[1:] | tied[:-1])
    if len(at):
        rows = order[at]
        order[at] = rows[np.lexsort((-dur_ns[rows], start_ns[rows]))]
    return order


def arranged(
    columns: dict[str, pa.ChunkedArray], types: Mapping[str, pa.DataType], order: IntArray | None
) -> dict[str, pa.ChunkedArray]:
    """Return the columns, converted to ``types`` and sorted by ``order`` (None: not sorted). Except for strings, each
    has one chunk. Each column is removed from ``columns`` when it is converted, so that its memory can be reused."""
    rows = None if order is None else pa.array(order)

    def convert(name: str) -> pa.ChunkedArray:
        column, of_type = columns.pop(name), types[name]
        if pa.types.is_string(column.type) and column.type == of_type:
            return column if order is None else texts_taken(column, order)
        values = joined(column)
        if order is not None and values.null_count == 0 and pa.types.is_integer(values.type):
            values = pa.array(values.to_numpy()[order])  # faster than Arrow's take
        elif order is not None:
            values = values.take(rows)
        if pa.types.is_dictionary(of_type) and not pa.types.is_dictionary(values.type):
            values = values.cast(pa.string()).dictionary_encode()
        return pa.chunked_array([values if values.type == of_type else values.cast(of_type)], of_type)

    if len(types) < 2 or len(next(iter(columns.values()))) < parallel.WORTH_ROWS:
        return {name: convert(name) for name in types}
    return dict(zip(types, parallel.in_order(convert, types), strict=True))  # Arrow releases Python's global lock


def with_events(trace: Trace, more: pa.Table, parent: IntArray, launched_by: IntArray) -> Trace:
    """Return the trace with the events ``more``, sorted by time. ``parent`` and ``launched_by`` are the references of
    the events of the trace, followed by those of ``more``, as row numbers in this order."""
    table = pa.concat_tables([trace.events, more]).unify_dictionaries()
    order = by_time(table["start_ns"].to_numpy(), table["dur_ns"].to_numpy())
    if order is None:
        order = np.arange(len(table))
    types = {field.name: field.type for field in schema.SCHEMA}
    columns = arranged(dict(zip(table.column_names, table.columns, strict=True)), types, order)
    table = pa.table([columns[name] for name in types], schema=schema.SCHEMA)
    for name, rows in (("parent", parent), ("launched_by", launched_by)):
        field = schema.SCHEMA.field(name)
        table = table.set_column(table.column_names.index(name), field, pa.array(nesting.renumbered(rows, order)))
    position = np.empty(len(table), np.int64)
    position[order] = np.arange(len(table))
    return trace.with_rows(table, position.take)


def texts_taken(
    column: pa.ChunkedArray, order: IntArray | None, instead: Mapping[int, str | None] = MappingProxyType({})
) -> pa.ChunkedArray:
    """Return the texts of the rows in ``order``, or of all rows if ``order`` is None. The caller ensures that
    ``order`` has no duplicates. ``instead`` maps rows of the column to replacement texts."""
    order = np.arange(len(column)) if order is None else order
    replacements = pa.chunked_array([list(instead.values())], column.type)
    if column.nbytes + replacements.nbytes <= OFFSETS_END:
        return pa.chunked_array([reordered(joined(column), order, instead)], column.type)
    if instead:
        source = np.arange(len(column))
        source[list(instead)] = np.arange(len(column), len(column) + len(replacements))
        order, column = source[order], pa.chunked_array([*column.chunks, *replacements.chunks], column.type)
    rows = pa.array(order)
    # A string array holds at most 2 GB of text.
    large = column.cast(pa.large_string()).combine_chunks()
    pieces = [large.take(rows.slice(at, _SLICE)).cast(column.type) for at in range(0, len(rows), _SLICE)]
    return pa.chunked_array(pieces, column.type)
