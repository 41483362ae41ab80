"""Columns of a stored trace, read when they are asked for, a row group at a time.

The file is not kept open, so a job of thousands of ranks does not run out of file handles; a file that was changed or
removed meanwhile is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.algorithms.arrays import constant, joined
from perfkit_core.errors import SourceError
from perfkit_core.model import schema
from perfkit_core.model.column_sources import Columns
from perfkit_core.runtime import parallel
from perfkit_core.system.paths import arrow_input, fetched, is_remote

_AHEAD: Final = 2
"""Row groups that are decoded while the one before is used."""


@dataclass(frozen=True, slots=True)
class StoredColumns(Columns):
    """Columns of the file at ``path``, whose footer is ``found``. What cannot be read raises SourceError."""

    path: Path
    found: pq.FileMetaData
    position: dict[str, int]
    """Number of each column in the file."""
    empty: tuple[str, ...] | None
    """Columns of nothing but nulls, None where the file does not tell."""
    stamp: tuple[int, int]
    """Size and time of last change of the file when it was opened."""
    content: pa.Buffer | None = None
    """All bytes of a file in a store, where each column would be a request of its own; None: read from ``path``."""

    @property
    def num_rows(self) -> int:
        return int(self.found.num_rows)

    def known(self, name: str) -> bool:
        if self.empty is not None:
            return name not in self.empty
        return any(self._holds(group, name) for group in range(self.found.num_row_groups))

    def chunks(self, name: str) -> Iterator[pa.Array]:
        of_type = schema.SCHEMA.field(name).type
        groups = range(self.found.num_row_groups)
        for table in parallel.in_order(lambda group: self._read([group], [name]), groups, _AHEAD + 1, _AHEAD):
            yield from table.column(0).cast(of_type).chunks

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        sizes = np.array([self.found.row_group(group).num_rows for group in range(self.found.num_row_groups)], np.int64)
        group = np.searchsorted(np.cumsum(sizes), rows, side="right")
        wanted = np.unique(group)
        if not len(wanted) or not self.known(name):
            return joined(constant(None, schema.SCHEMA.field(name).type, len(rows)))
        read = np.zeros(len(sizes), np.int64)
        read[wanted] = sizes[wanted]
        left_out = np.cumsum(sizes - read) - (sizes - read)
        column = self._read(wanted.tolist(), [name]).column(0).cast(schema.SCHEMA.field(name).type)
        return joined(column.take(pa.array(rows - left_out[group])))

    def table(self) -> pa.Table:
        table = self._read(list(range(self.found.num_row_groups)), list(schema.COLUMN_NAMES))
        known = {name: table.column(name).cast(schema.SCHEMA.field(name).type) for name in schema.COLUMN_NAMES}
        empty = {name: self.column(name) for name in schema.COLUMN_NAMES if not self.known(name)}
        return pa.Table.from_pydict(known | empty, schema=schema.SCHEMA)

    def _read(self, groups: list[int], names: list[str]) -> pa.Table:
        """Each call opens the file for itself: readers of one open file are not safe to share between threads."""
        try:
            if _stamp(self.path) != self.stamp:
                raise SourceError(f"{self.path}: the file was changed while it was being read", "load it again")
            with self._open() as opened, pq.ParquetFile(opened, metadata=self.found) as file:
                return file.read_row_groups(groups, columns=names, use_threads=len(names) > 1)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"{self.path}: not a readable Parquet file ({error})", "record the run again") from None

    def _open(self) -> pa.NativeFile:
        return arrow_input(self.path) if self.content is None else pa.BufferReader(self.content)

    def _holds(self, group: int, name: str) -> bool:
        """Whether a row group has anything but nulls in a column; read where no statistics tell."""
        column = self.found.row_group(group).column(self.position[name])
        if column.is_stats_set and column.statistics.has_null_count:
            return bool(column.statistics.null_count < column.num_values)
        return bool(self._read([group], [name]).column(0).null_count < column.num_values)


def stored_columns(path: Path, found: pq.FileMetaData, empty: tuple[str, ...] | None) -> StoredColumns:
    """The columns of a file with this footer; ``empty`` names those of nothing, where that is known.

    Raises SourceError where some of the schema are missing.
    """
    position = {found.schema.column(i).path: i for i in range(found.num_columns)}
    missing = [name for name in schema.COLUMN_NAMES if name not in position]
    if missing:
        raise SourceError(f"{path}: columns are missing ({', '.join(missing)})", "record the run again")
    content = fetched(path) if is_remote(path) else None
    return StoredColumns(path, found, position, empty, _stamp(path), content)


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time of last change; of a file in a store, whose bytes are held, nothing."""
    if is_remote(path):
        return 0, 0
    found = path.stat()
    return found.st_size, found.st_mtime_ns
