"""The gate: the checks that all events, side tables and metadata pass before anything is computed from them.

Each source ends here, whatever its format: recorded events in :func:`checked_events`, event tables in
:func:`checked_table`, cells of stored files, which are read on demand, in :func:`checked`, side tables in
:func:`checked_side_table`, and metadata in :func:`checked_meta`. Sources may be damaged or come from a stranger, and
neither Arrow nor compiled code checks an index before it follows it. docs/reliability.md lists the limits."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, to_int64
from perfkit_core.base.language.messages import message
from perfkit_core.errors import SourceError
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.event_columns import ROW_REFERENCES
from perfkit_core.trace.model.meta import Device, Finding, TraceMeta
from perfkit_core.trace.model.side_table import SideTable

_WORDS: Final = {"kind": frozenset(schema.KINDS), "phase": frozenset(schema.PHASES)}
"""Columns whose words are known in advance."""
_NOT_NEGATIVE: Final = ("dur_ns", "self_ns", "rank")
_NEEDED: Final = ("name", "kind", "start_ns", "dur_ns", "device")
"""Columns that recorded events have. Only the device of an event may be unknown."""
_SHOWN: Final = 40
"""Longest text of a value in a message."""
_LONGEST_REASON: Final = 200
"""Longest text of Arrow in a message, which may be about a value of any length."""
_TEXT_TYPES: Final = (pa.string(), pa.large_string())
META_IMPLAUSIBLE: Final = "impossible-metadata"
"""Code of the finding that metadata is impossible, such as a negative world size."""


def checked(
    events: pa.Table, fields: pa.Schema, ranks: Collection[int] | None, first: int = 0, rows: int | None = None
) -> pa.Table:
    """Return columns of an event table with the names and types of ``fields``. Raises ValueError with the column, the
    row and the value of a cell that cannot be:

    - a text that is not in its dictionary, or is not UTF-8; a value that does not fit the type
    - null in a column of ``fields`` that has none; a kind or phase that does not exist; a negative time or rank
    - a rank that is not in ``ranks``, those of the metadata; None if these are unknown
    - a reference to no row; a parent that does not precede its child; a launch that is no host event, if ``events`` has
      all rows and the column ``device``

    ``events`` holds the rows from ``first`` on of a table with ``rows`` rows, or up to its end if ``rows`` is None.
    """
    names = fields.names
    _need(names, events.column_names)
    events = _with_types(
        events if events.column_names == names else events.select(names),
        [(field.name, field.type, field.nullable) for field in fields],
        ranks,
        first,
        first + len(events) if rows is None else rows,
    )
    if not events.schema.equals(fields, check_metadata=False):  # some cells may be null in one of them only
        events = pa.Table.from_arrays(events.columns, schema=fields.remove_metadata())
    events = events.replace_schema_metadata(None)
    if first == 0 and rows in (None, len(events)) and {"launched_by", "device"} <= set(names):
        _check_launches(events)
    return events


def _with_types(
    events: pa.Table,
    expected: Iterable[tuple[str, pa.DataType | None, bool]],
    ranks: Collection[int] | None,
    first: int,
    rows: int,
) -> pa.Table:
    """Return ``events`` with the expected types, after the checks of single cells. ``expected`` has the name of each
    column, its type (None: as it is), and whether it may be null. Arrow objects are made once for each column: for most
    recordings, this costs more than to look at the cells."""
    try:
        events.validate()
        damaged = False
    except pa.ArrowInvalid:
        damaged = True
    for position, ((name, wanted_type, nullable), column) in enumerate(zip(expected, events.columns, strict=True)):
        of_type = column.type
        if damaged or not pa.types.is_integer(of_type):
            _check_texts(name, column, first)
        if wanted_type is not None and of_type != wanted_type:
            column = _cast(name, column, wanted_type)
            events = events.set_column(position, name, column)
        _check_cells(name, nullable, column, ranks, first, rows)
    return events


def checked_table(events: pa.Table, ranks: Collection[int] | None) -> pa.Table:
    """Return a complete event table after :func:`checked`. Raises ValueError also if events of a rank are not adjacent
    and sorted by start, an end does not fit in 64 bits, or a self time exceeds its duration."""
    events = checked(events, schema.SCHEMA, ranks)
    names = ("start_ns", "dur_ns", "self_ns", "rank")
    start, duration, self_time, rank = (to_int64(events[name].chunks, len(events), NO_ROW) for name in names)
    _check_ends(start, duration)
    if (self_time > duration).any():
        raise ValueError(f"the self time of row {int((self_time > duration).argmax())} exceeds its duration")
    other_rank = rank[1:] != rank[:-1]
    if int(other_rank.sum()) + 1 > len(np.unique(rank)) and len(rank):
        raise ValueError("the events of a rank are not adjacent")
    early = np.flatnonzero((start[1:] < start[:-1]) & ~other_rank)
    if len(early):
        raise ValueError(f"row {early[0] + 1} starts before the row above it: events are sorted by start")
    return events


def checked_events(columns: pa.Table, types: Mapping[str, pa.DataType], parent: IntArray | None) -> pa.Table:
    """Return recorded columns after :func:`checked`. Columns that ``types`` names have these types, but texts may be
    encoded in any way. Raises ValueError also for a missing column, and if a row of ``parent`` does not exist. Rows may
    be in any order."""
    names = columns.column_names
    _need(_NEEDED, names)
    expected = []
    for name, of_type in zip(names, columns.schema.types, strict=True):
        declared = types.get(name)
        if declared is not None and pa.types.is_dictionary(declared):
            if _is_text(of_type):
                declared = None
            elif pa.types.is_string_view(of_type):
                declared = pa.string()  # Arrow cannot sort these columns
        expected.append((name, declared, name not in _NEEDED[:-1]))
    columns = _with_types(columns, expected, None, 0, len(columns))
    _check_ends(*(to_int64(columns[name].chunks, len(columns), 0) for name in ("start_ns", "dur_ns")))
    if parent is not None and (
        len(parent) != len(columns) or parent.min(initial=NO_ROW) < NO_ROW or parent.max(initial=NO_ROW) >= len(parent)
    ):
        raise ValueError("a parent is no row of the table")
    return columns


def refused(error: Exception) -> SourceError:
    """Return the error of a source whose events do not pass the gate."""
    return SourceError(f"invalid events: {error}", "report this to the author of the reader (see perfkit plugins)")


def _check_ends(start_ns: IntArray, dur_ns: IntArray) -> None:
    late = start_ns > np.iinfo(np.int64).max - np.maximum(dur_ns, 0)
    if late.any():
        raise ValueError(f"the end of row {int(late.argmax())} does not fit in 64 bits")


def checked_meta(meta: TraceMeta) -> tuple[TraceMeta, tuple[Finding, ...]]:
    """Return metadata without impossible values, whose fields get their defaults, and a warning that lists them."""
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(TraceMeta):
        value = getattr(meta, field.name)
        try:
            msgspec.convert(msgspec.to_builtins(value), field.type)
        except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
            changes[field.name] = () if field.name in ("ranks", "worlds") else field.default
            if field.name == "devices":
                changes["devices"] = tuple(filter(None, map(_plausible_device, value)))
    if not changes:
        return meta, ()
    stated = {name: getattr(meta, name) for name in changes}
    return msgspec.structs.replace(meta, **changes), (impossible(stated),)


def impossible(stated: Mapping[str, Any]) -> Finding:
    """Return a warning about impossible metadata. ``stated`` has the values by name."""
    names = tuple(f"{name} = {str(value)[:_SHOWN]}" for name, value in stated.items())
    text = message("impossible metadata is ignored: {names:list}", names=names)
    return Finding(META_IMPLAUSIBLE, text)


def _plausible_device(device: Device) -> Device | None:
    """Return a device without the fields that cannot be, or None if its id is no text."""
    attempts: tuple[dict[str, Any], ...] = (
        {}, {"memory_bytes": None}, {"name": None}, {"memory_bytes": None, "name": None, "properties": {}},
    )  # fmt: skip
    for changes in attempts:
        changed = msgspec.structs.replace(device, **changes)
        with contextlib.suppress(msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
            return msgspec.convert(msgspec.to_builtins(changed), Device)
    return None


def _need(names: Sequence[str], present: Sequence[str]) -> None:
    """Raise ValueError if one of the columns ``names`` is missing, or if ``present`` has a column twice."""
    missing = set(names).difference(present)
    if missing:
        raise ValueError(f"columns are missing: {', '.join(sorted(missing))}")
    if len(set(present)) < len(present):
        twice = sorted(name for name, count in Counter(present).items() if count > 1)
        raise ValueError(f"columns with the same name: {', '.join(twice)}")


def _is_text(of_type: pa.DataType) -> bool:
    return (of_type.value_type if pa.types.is_dictionary(of_type) else of_type) in _TEXT_TYPES


def _cast(name: str, column: pa.ChunkedArray, of_type: pa.DataType) -> pa.ChunkedArray:
    try:
        return column.cast(of_type)
    except pa.ArrowException as error:  # those of types that do not fit are no ValueError
        reason = str(error).partition("\n")[0][:_LONGEST_REASON]
        raise ValueError(f"the column {name} has the type {column.type}, not {of_type}: {reason}") from None


def _check_texts(name: str, column: pa.ChunkedArray, first: int) -> None:
    """Raise ValueError if a text of a column lies outside of its memory, is not in its dictionary, or is not UTF-8.
    ``first`` is the row of the column's first cell."""
    for chunk in column.chunks:
        encoded = pa.types.is_dictionary(chunk.type)
        dictionary: Any = chunk.dictionary if encoded else None
        try:
            if encoded and _all_in(chunk.indices, len(dictionary)):
                dictionary.validate(full=True)
            else:
                chunk.validate(full=True)
        except pa.ArrowInvalid as error:
            reason = str(error).rpartition("Invalid: ")[2]
            rows = f"{first} to {first + len(chunk) - 1}"
            raise ValueError(f"the column {name} is damaged in the rows {rows}: {reason}") from None
        if encoded and dictionary.null_count:
            raise ValueError(f"the dictionary of the column {name} has an empty entry")
        first += len(chunk)


def _check_cells(
    name: str, nullable: bool, column: pa.ChunkedArray, ranks: Collection[int] | None, first: int, rows: int
) -> None:
    if column.null_count and not nullable:
        row = pc.index(column.is_null(), True).as_py()
        raise ValueError(f"the column {name} is empty in row {first + row}")
    if name in _WORDS:
        words = {word for chunk in column.chunks for word in _distinct(chunk)}
        for word in words - _WORDS[name] - {None}:
            row = pc.index(column.cast(pa.string()), word).as_py()
            raise ValueError(f"the column {name} has an unknown word in row {first + row}: {str(word)[:40]!r}")
    if name in _NOT_NEGATIVE and any(_integers(chunk).min(initial=0) < 0 for chunk in column.chunks):
        least = pc.min(column)  # a cell that is null may hold a negative number
        if least.is_valid and least.as_py() < 0:
            row = pc.index(column, least).as_py()
            raise ValueError(f"the column {name} is negative in row {first + row}: {least}")
    if name == "rank" and ranks is not None and column.null_count < len(column):
        for rank in set(column.unique().to_pylist()) - {None, *ranks}:
            raise ValueError(f"the events of rank {rank} contradict the metadata, which has no such rank")
    if name in ROW_REFERENCES and not nullable:  # recorded parents may be null: they are no rows yet
        at = to_int64(column.chunks, len(column), NO_ROW)
        end = np.arange(first, first + len(at)) if name == "parent" else np.int64(rows)
        if at.min(initial=NO_ROW) < NO_ROW or (at >= end).any():
            row = int(np.argmax((at < NO_ROW) | (at >= end)))
            target = "an earlier row" if name == "parent" else "a row"
            raise ValueError(f"the column {name} of row {first + row} is {at[row]}, which is not {target} of the table")


def checked_side_table(declared: SideTable, table: pa.Table, rows: int | None) -> pa.Table:
    """Return a side table with the columns that ``declared`` says, in its order and with its types. Raises ValueError
    (also as ArrowInvalid) for a damaged or missing column, null in a column that has none, a word that does not exist,
    a negative number, and rows that do not ascend or are not among the ``rows`` of the event table (None: unknown)."""
    _need(declared.schema.names, table.column_names)
    arrays = []
    for field in declared.schema:
        column = table[field.name]
        _check_texts(field.name, column, 0)
        arrays.append(column if column.type == field.type else _cast(field.name, column, field.type))
    table = pa.table(arrays, declared.schema)
    for field in declared.schema:
        column, name = table[field.name], field.name
        if column.null_count and not field.nullable:
            raise ValueError(f"the column {name} has an empty cell")
        if name in declared.words:
            for word in set(column.unique().to_pylist()) - {None, *declared.words[name]}:
                raise ValueError(f"the column {name} has an unknown word: {word[:40]!r}")
        if name in declared.not_negative and (least := pc.min(column).as_py()) is not None and least < 0:
            raise ValueError(f"the column {name} has a negative number: {least}")
    if declared.describes_rows and len(table):
        at = table["row"].to_numpy()
        if at[0] < 0 or (at[1:] <= at[:-1]).any() or (rows is not None and at[-1] >= rows):
            raise ValueError("the rows do not ascend, or are not rows of the event table")
    return table


def _distinct(chunk: pa.Array) -> list[str | None]:
    texts = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk.unique()
    return cast("list[str | None]", texts.to_pylist())


def _all_in(numbers: pa.Array, count: int) -> bool:
    """Return whether all numbers are at least 0 and less than ``count``, also those of null cells. Arrow's validation
    skips null cells, but takes twelve times as long."""
    cells = _integers(numbers)
    unsigned = cells.view(f"u{cells.itemsize}")  # negative numbers are the largest
    return bool(unsigned.max(initial=0) < count)


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
