"""The columns of an event table: in memory, in a file, or joined from several traces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import NO_ROW, IntArray, constant, joined
from perfkit_core.trace.model import schema

ROW_REFERENCES: Final = ("parent", "launched_by")


class Columns(ABC):
    """The columns of one event table, with the types of the schema. Several threads may use the same object."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """The number of events. This reads no column."""

    @abstractmethod
    def has_values(self, name: str) -> bool:
        """Return whether a column has a value that is not null."""

    def chunks(self, name: str) -> Iterator[pa.Array]:
        """Yield the chunks of a column, whose dictionaries may differ. A subclass overrides this or :meth:`column`."""
        return iter(self.column(name).chunks)

    def between(self, name: str, first: int, end: int) -> Iterator[pa.Array]:
        """Yield the cells of the rows from ``first`` to before ``end``. Row references remain rows of the whole table.
        A subclass overrides this if it can read parts of a column."""
        return sliced(self.chunks(name), first, end)

    def column(self, name: str) -> pa.ChunkedArray:
        if not self.has_values(name):
            return constant(None, schema.SCHEMA.field(name).type, self.num_rows)
        return pa.chunked_array(list(self.chunks(name)), schema.SCHEMA.field(name).type)

    def magnitude(self, name: str) -> int:
        """Return the largest absolute value of an integer column, or a larger number. Return 0 without values."""
        return max(map(_magnitude, self.chunks(name)), default=0) if self.has_values(name) else 0

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        """Return the values of a column in the given ``rows``, in the order of ``rows``."""
        return joined(self.column(name).take(pa.array(rows, pa.int64())))

    def table(self) -> pa.Table:
        return pa.Table.from_arrays([self.column(name) for name in schema.COLUMN_NAMES], schema=schema.SCHEMA)


def sliced(chunks: Iterable[pa.Array], first: int, end: int) -> Iterator[pa.Array]:
    """Yield the cells from ``first`` to before ``end`` of the ``chunks``, which are one after the other."""
    at = 0
    for chunk in chunks:
        start, stop = max(first - at, 0), min(end - at, len(chunk))
        if start < stop:
            yield chunk.slice(start, stop - start)
        at += len(chunk)


def picked_by_part(
    first_row: IntArray, rows: np.ndarray[Any, np.dtype[Any]], pick: Callable[[int, IntArray], pa.Array], name: str
) -> pa.Array:
    """Return the values of column ``name`` in the given ``rows``, taken from several parts one by one. Part i begins at
    ``first_row[i]``, and ``pick(i, part_rows)`` returns the values in its rows ``part_rows``."""
    part = np.searchsorted(first_row[1:], rows, side="right")
    order = np.argsort(part, kind="stable")
    numbers, begins = np.unique(part[order], return_index=True)
    of_part = np.split(rows[order], begins[1:]) if len(rows) else []
    cells = [pick(i, part_rows - first_row[i]) for i, part_rows in zip(numbers.tolist(), of_part, strict=True)]
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return joined(pa.chunked_array(cells, schema.SCHEMA.field(name).type)).take(pa.array(position))


def moved(references: Iterable[pa.Array], by: int) -> Iterator[pa.Array]:
    """Yield row references increased by ``by``. NO_ROW stays the same."""
    for chunk in references:
        rows = chunk.to_numpy()
        yield pa.array(np.where(rows == NO_ROW, NO_ROW, rows + by)) if by else chunk


def _magnitude(values: pa.Array) -> int:
    ends = pc.min_max(values).as_py()
    return max(abs(ends["min"] or 0), abs(ends["max"] or 0))


@dataclass(frozen=True, slots=True)
class TableColumns(Columns):
    events: pa.Table

    @property
    def num_rows(self) -> int:
        return int(self.events.num_rows)

    def has_values(self, name: str) -> bool:
        return bool(self.events.column(name).null_count < self.num_rows)

    def column(self, name: str) -> pa.ChunkedArray:
        return self.events.column(name)

    def table(self) -> pa.Table:
        return self.events


@dataclass(frozen=True, slots=True)
class ChangedColumns(Columns):
    base: Columns
    changes: TableColumns

    @property
    def num_rows(self) -> int:
        return self.base.num_rows

    def has_values(self, name: str) -> bool:
        return self._of(name).has_values(name)

    def chunks(self, name: str) -> Iterator[pa.Array]:
        return self._of(name).chunks(name)

    def between(self, name: str, first: int, end: int) -> Iterator[pa.Array]:
        return self._of(name).between(name, first, end)

    def column(self, name: str) -> pa.ChunkedArray:
        return self._of(name).column(name)

    def magnitude(self, name: str) -> int:
        return self._of(name).magnitude(name)

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        return self._of(name).pick(name, rows)

    def _of(self, name: str) -> Columns:
        return self.changes if name in self.changes.events.column_names else self.base


@dataclass(frozen=True, slots=True)
class JoinedColumns(Columns):
    """The columns of several traces, concatenated. A row reference grows by the number of rows in earlier traces."""

    parts: Sequence[Columns]

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.parts)

    def has_values(self, name: str) -> bool:
        return any(part.has_values(name) for part in self.parts)

    def chunks(self, name: str) -> Iterator[pa.Array]:
        return self.between(name, 0, self.num_rows)

    def between(self, name: str, first: int, end: int) -> Iterator[pa.Array]:
        offset = 0
        for part in self.parts:
            rows = max(first - offset, 0), min(end - offset, part.num_rows)
            if rows[0] < rows[1]:
                chunks = part.between(name, *rows) if part.has_values(name) else sliced(part.column(name).chunks, *rows)
                yield from moved(chunks, offset) if name in ROW_REFERENCES else chunks
            offset += part.num_rows

    def magnitude(self, name: str) -> int:
        return max((part.magnitude(name) for part in self.parts), default=0)

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        if name in ROW_REFERENCES:
            return Columns.pick(self, name, rows)
        first_row = np.append(0, np.cumsum([part.num_rows for part in self.parts]))
        return picked_by_part(first_row, rows, lambda number, part_rows: self.parts[number].pick(name, part_rows), name)


class OutsidePartError(Exception):
    """A row reference of a part leads to a row outside the part."""


@dataclass(frozen=True, slots=True)
class PartColumns(Columns):
    """The rows from ``first`` to before ``end`` of other columns. Reading row references raises OutsidePartError if one
    leads out of the part."""

    columns: Columns
    first: int
    end: int

    @property
    def num_rows(self) -> int:
        return self.end - self.first

    def has_values(self, name: str) -> bool:
        """Return whether the column of the whole table has a value, so that views treat all parts alike."""
        return self.columns.has_values(name)

    def chunks(self, name: str) -> Iterator[pa.Array]:
        chunks = self.columns.between(name, self.first, self.end)
        return self._moved_into_part(chunks) if name in ROW_REFERENCES else chunks

    def _moved_into_part(self, references: Iterable[pa.Array]) -> Iterator[pa.Array]:
        for chunk in references:
            rows = chunk.to_numpy()
            if ((rows != NO_ROW) & ((rows < self.first) | (rows >= self.end))).any():
                raise OutsidePartError
            yield from moved([chunk], -self.first)

    def magnitude(self, name: str) -> int:
        return self.columns.magnitude(name)

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        return Columns.pick(self, name, rows) if name in ROW_REFERENCES else self.columns.pick(name, rows + self.first)
