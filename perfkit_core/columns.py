"""Where do the columns of an event table come from? From a table in memory, other traces, or a file that is read on
demand: whoever asks for three columns pays for three.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perfkit_core import schema

ROW_REFERENCES: Final = ("parent", "launched_by")
"""Columns that hold row numbers of their own table."""
_BLOCK: Final = 1 << 16
"""Rows that columns of one repeated value hold in memory, however long they are."""


class Columns(ABC):
    """The columns of one event table, in the schema's types. Safe to share between threads."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """How many events there are; never reads one."""

    @abstractmethod
    def known(self, name: str) -> bool:
        """Whether the column holds anything but nulls."""

    @abstractmethod
    def chunks(self, name: str) -> Iterator[pa.Array]:
        """The column from first to last row, in pieces of any length; dictionaries may differ from piece to piece."""

    def column(self, name: str) -> pa.ChunkedArray:
        """The whole column."""
        if not self.known(name):
            return constant(None, schema.SCHEMA.field(name).type, self.num_rows)
        return pa.chunked_array(list(self.chunks(name)), schema.SCHEMA.field(name).type)

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        """Some cells of a column, in the order of ``rows``."""
        return joined(self.column(name).take(pa.array(rows, pa.int64())))

    def table(self) -> pa.Table:
        """All columns of the schema."""
        return pa.Table.from_arrays([self.column(name) for name in schema.COLUMN_NAMES], schema=schema.SCHEMA)


@dataclass(frozen=True, slots=True)
class TableColumns(Columns):
    """Columns of a table in memory."""

    events: pa.Table

    @property
    def num_rows(self) -> int:
        return int(self.events.num_rows)

    def known(self, name: str) -> bool:
        return bool(self.events.column(name).null_count < self.num_rows)

    def chunks(self, name: str) -> Iterator[pa.Array]:
        return iter(self.events.column(name).chunks)

    def column(self, name: str) -> pa.ChunkedArray:
        return self.events.column(name)

    def table(self) -> pa.Table:
        return self.events


@dataclass(frozen=True, slots=True)
class ChangedColumns(Columns):
    """Those of ``base``, some of them replaced."""

    base: Columns
    changes: Mapping[str, pa.ChunkedArray]

    @property
    def num_rows(self) -> int:
        return self.base.num_rows

    def known(self, name: str) -> bool:
        changed = self.changes.get(name)
        return self.base.known(name) if changed is None else bool(changed.null_count < len(changed))

    def chunks(self, name: str) -> Iterator[pa.Array]:
        changed = self.changes.get(name)
        return self.base.chunks(name) if changed is None else iter(changed.chunks)

    def column(self, name: str) -> pa.ChunkedArray:
        changed = self.changes.get(name)
        return self.base.column(name) if changed is None else changed

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        if name not in self.changes:
            return self.base.pick(name, rows)
        return joined(self.changes[name].take(pa.array(rows, pa.int64())))


@dataclass(frozen=True, slots=True)
class JoinedColumns(Columns):
    """Those of several traces one after the other; row references are shifted, so they stay inside their own part."""

    parts: Sequence[Columns]

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.parts)

    def known(self, name: str) -> bool:
        return any(part.known(name) for part in self.parts)

    def chunks(self, name: str) -> Iterator[pa.Array]:
        offset = 0
        for part in self.parts:
            chunks = part.chunks(name) if part.known(name) else part.column(name).chunks
            yield from (_shifted(chunk, offset) for chunk in chunks) if name in ROW_REFERENCES else chunks
            offset += part.num_rows

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        if name in ROW_REFERENCES:
            return Columns.pick(self, name, rows)
        ends = np.cumsum([part.num_rows for part in self.parts])
        owner = np.searchsorted(ends, rows, side="right")
        order = np.argsort(owner, kind="stable")
        found = [
            part.pick(name, rows[owner == number] - (ends[number] - part.num_rows))
            for number, part in enumerate(self.parts)
        ]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return joined(pa.chunked_array(found)).take(pa.array(place))


def joined(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, with one dictionary."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.unify_dictionaries().chunks or [pa.array([], column.type)])


def constant(value: int | None, of_type: pa.DataType, count: int) -> pa.ChunkedArray:
    """``count`` times the same value (None: null), which takes no more memory than a few thousand of it."""
    size = min(count, _BLOCK)
    block = pa.nulls(size, of_type) if value is None else pa.repeat(pa.scalar(value, of_type), size)
    whole, rest = divmod(count, size) if size else (0, 0)
    return pa.chunked_array([block] * whole + ([block.slice(0, rest)] if rest else []), of_type)


def nullable(values: np.ndarray[Any, np.dtype[Any]]) -> pa.ChunkedArray:
    """Integers as a column, negative ones null. Shares the memory of ``values``."""
    known = values >= 0
    count, of_type = len(values), pa.from_numpy_dtype(values.dtype)
    nulls = count - int(np.count_nonzero(known))
    if nulls == count:
        return constant(None, of_type, count)
    bits = pa.py_buffer(np.packbits(known, bitorder="little")) if nulls else None
    cells = pa.py_buffer(np.ascontiguousarray(values))
    return pa.chunked_array([pa.Array.from_buffers(of_type, count, [bits, cells], nulls)])


def texts(codes: np.ndarray[Any, np.dtype[np.int32]], values: Sequence[str]) -> pa.ChunkedArray:
    """A text column of codes that index ``values``, negative ones null. Shares the memory of ``codes``."""
    of_type = schema.SCHEMA.field("name").type
    indices = nullable(codes)
    if indices.null_count == len(codes):
        return constant(None, of_type, len(codes))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices.chunk(0), pa.array(values, pa.string()))], of_type)


def to_int64(chunks: Iterable[pa.Array], count: int, missing: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Integers as one array of shape (count,), read only; nulls are ``missing``."""
    values: np.ndarray[Any, np.dtype[np.int64]] | None = None
    at = 0
    for chunk in chunks:
        part = (chunk.fill_null(missing) if chunk.null_count else chunk).to_numpy()
        if len(part) == count and part.dtype == np.int64:
            values = part
            break
        values = np.empty(count, np.int64) if values is None else values
        values[at : at + len(part)] = part
        at += len(part)
    values = np.empty(0, np.int64) if values is None else values
    values.setflags(write=False)
    return values


def to_codes(chunks: Iterable[pa.Array], count: int) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[str]]:
    """Texts as codes of shape (count,), -1 for null, read only, and the distinct values that they index."""
    codes: np.ndarray[Any, np.dtype[np.int32]] | None = None
    number: dict[str, int] = {}
    at, last, spread = 0, None, np.empty(0, np.int32)
    for chunk in chunks:
        part = chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        if len(part) == count:
            part.setflags(write=False)
            return part, chunk.dictionary.to_pylist()
        if last is None or not chunk.dictionary.equals(last):
            last = chunk.dictionary
            numbers = [number.setdefault(value, len(number)) for value in last.to_pylist()]
            spread = np.array([*numbers, -1], np.int32)
        codes = np.empty(count, np.int32) if codes is None else codes
        codes[at : at + len(part)] = spread[part]
        at += len(part)
    codes = np.empty(0, np.int32) if codes is None else codes
    codes.setflags(write=False)
    return codes, list(number)


def _shifted(rows: pa.Array, offset: int) -> pa.Array:
    numbers = rows.to_numpy()
    return pa.array(np.where(numbers == schema.NO_ROW, schema.NO_ROW, numbers + offset)) if offset else rows
