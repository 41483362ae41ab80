"""Where do the columns of an event table come from? From a table in memory, other traces, or a file that is read on
demand: whoever asks for three columns pays for three.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import NO_ROW, constant, joined
from perfkit_core.model import schema

ROW_REFERENCES: Final = ("parent", "launched_by")
"""Columns that hold row numbers of their own table."""


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


def _shifted(rows: pa.Array, offset: int) -> pa.Array:
    numbers = rows.to_numpy()
    return pa.array(np.where(numbers == NO_ROW, NO_ROW, numbers + offset)) if offset else rows
