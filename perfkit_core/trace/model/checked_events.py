"""The gate of event tables. Every reader that takes the cells of an event table from a file passes them through
:func:`checked`: stored runs of both stages, and exported timelines. Such a file may be damaged or come from a stranger,
and neither Arrow nor compiled code checks an index before it follows it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, to_int64
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.event_columns import ROW_REFERENCES

_WORDS: Final = {"kind": frozenset(schema.KINDS), "phase": frozenset(schema.PHASES)}
"""Columns whose words are known in advance."""
_NOT_NEGATIVE: Final = ("dur_ns", "self_ns", "rank")


def checked(
    events: pa.Table, fields: pa.Schema, ranks: Collection[int] | None, first: int = 0, rows: int | None = None
) -> pa.Table:
    """Return columns of an event table with the names and types of ``fields``. Raises ValueError (also as
    ArrowInvalid) with the column, the row and the value of a cell that cannot be:

    - a text that is not in its dictionary, or is not UTF-8; a value that does not fit the type
    - null in a column of ``fields`` that has none; a kind or phase that does not exist; a negative time or rank
    - a rank that is not in ``ranks``, those of the metadata; None if these are unknown
    - a reference to no row; a parent that does not precede its child; a launch that is no host event, if ``events`` has
      all rows and the column ``device``

    ``events`` holds the rows from ``first`` on of a table with ``rows`` rows, or up to its end if ``rows`` is None.
    """
    columns = []
    for field in fields:
        column = events.column(field.name)
        _check_texts(field.name, column, first)
        columns.append(column if column.type == field.type else column.cast(field.type))
    events = pa.table(columns, fields.remove_metadata())
    for field in fields:
        _check_cells(field, events.column(field.name), ranks, first, first + len(events) if rows is None else rows)
    if first == 0 and rows in (None, len(events)) and {"launched_by", "device"} <= set(fields.names):
        _check_launches(events)
    return events


def _check_texts(name: str, column: pa.ChunkedArray, first: int) -> None:
    """Raise ValueError if a text of a column lies outside of its memory, is not in its dictionary, or is not UTF-8.
    ``first`` is the row of the column's first cell."""
    for chunk in column.chunks:
        try:
            chunk.validate()
            if pa.types.is_dictionary(chunk.type) and _all_in(chunk.indices, len(chunk.dictionary)):
                chunk.dictionary.validate(full=True)
            elif not pa.types.is_integer(chunk.type):
                chunk.validate(full=True)
        except pa.ArrowInvalid as error:
            reason = str(error).rpartition("Invalid: ")[2]
            rows = f"{first} to {first + len(chunk) - 1}"
            raise ValueError(f"the column {name} is damaged in the rows {rows}: {reason}") from None
        if pa.types.is_dictionary(chunk.type) and chunk.dictionary.null_count:
            raise ValueError(f"the dictionary of the column {name} has an empty entry")
        first += len(chunk)


def _check_cells(
    field: pa.Field, column: pa.ChunkedArray, ranks: Collection[int] | None, first: int, rows: int
) -> None:
    name = field.name
    if column.null_count and not field.nullable:
        row = pc.index(column.is_null(), True).as_py()
        raise ValueError(f"the column {name} is empty in row {first + row}")
    if name in _WORDS:
        for word in {word for chunk in column.chunks for word in chunk.dictionary.to_pylist()} - _WORDS[name]:
            row = pc.index(column.cast(pa.string()), word).as_py()
            raise ValueError(f"the column {name} has an unknown word in row {first + row}: {word[:40]!r}")
    if name in _NOT_NEGATIVE and any(_integers(chunk).min(initial=0) < 0 for chunk in column.chunks):
        least = pc.min(column)  # a cell that is null may hold a negative number
        if least.is_valid and least.as_py() < 0:
            row = pc.index(column, least).as_py()
            raise ValueError(f"the column {name} is negative in row {first + row}: {least}")
    if name == "rank" and ranks is not None and column.null_count < len(column):
        for rank in set(column.unique().to_pylist()) - {None, *ranks}:
            raise ValueError(f"the events of rank {rank} contradict the metadata, which has no such rank")
    if name in ROW_REFERENCES and not field.nullable:  # recorded parents may be null: they are no rows yet
        at = to_int64(column.chunks, len(column), NO_ROW)
        end = np.arange(first, first + len(at)) if name == "parent" else np.int64(rows)
        if at.min(initial=NO_ROW) < NO_ROW or (at >= end).any():
            row = int(np.argmax((at < NO_ROW) | (at >= end)))
            target = "an earlier row" if name == "parent" else "a row"
            raise ValueError(f"the column {name} of row {first + row} is {at[row]}, which is not {target} of the table")


def _all_in(numbers: pa.Array, count: int) -> bool:
    """Return whether all numbers are at least 0 and less than ``count``, also those of null cells. Arrow's validation
    skips null cells, but takes six times as long."""
    cells = _integers(numbers)
    return bool(cells.min(initial=0) >= 0 and cells.max(initial=-1) < count)


def _integers(chunk: pa.Array) -> IntArray:
    """Return the integers of a chunk without a copy, shape (rows,). Those of null cells have no meaning."""
    cells = chunk.buffers()[1]
    if cells is None:
        return np.empty(0, np.int64)
    return np.frombuffer(cells, chunk.type.to_pandas_dtype())[chunk.offset :][: len(chunk)]


def _check_launches(events: pa.Table) -> None:
    launched_by = to_int64(events.column("launched_by").chunks, len(events), NO_ROW)
    launched = np.flatnonzero(launched_by != NO_ROW)
    on_host = pc.equal(events.column("device").take(pa.array(launched_by[launched])), schema.CPU)
    device_work = np.asarray(pc.fill_null(on_host, False)) == 0
    if device_work.any():
        row = int(launched[np.argmax(device_work)])
        raise ValueError(f"row {row} is launched by row {launched_by[row]}, which is no event of the host")
