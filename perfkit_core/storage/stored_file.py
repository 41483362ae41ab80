"""Stored files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.algorithms.arrays import constant, joined
from perfkit_core.errors import SourceError
from perfkit_core.model import schema
from perfkit_core.model.meta import StoredFinding, TraceMeta
from perfkit_core.model.trace import Columns
from perfkit_core.runtime import parallel
from perfkit_core.system.paths import arrow_input, fetched, is_remote

KEY: Final = b"perfkit"


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the footer holds. A file of stage "recorded" holds events as a source read them, not yet assembled:
    ``rank`` and ``base_ns`` (added to all starts) are what only its end told, ``reader`` the source that completes them
    ("" where nothing is left to do). ``empty`` names the columns of nothing
    but nulls, None where that was not written down."""

    schema_version: int
    meta: TraceMeta
    quality: tuple[StoredFinding, ...]
    stage: Literal["trace", "recorded"] = "trace"
    rank: int | None = None
    base_ns: int = 0
    reader: str = ""
    empty: tuple[str, ...] | None = None

    def json(self) -> bytes:
        """As it stands in the file."""
        return msgspec.json.encode(self)


def is_ours(found: pa.Schema | pq.FileMetaData) -> bool:
    """Whether a Parquet file is one that perfkit wrote."""
    return KEY in (found.metadata or {})


def read_metadata(found: pa.Schema | pq.FileMetaData, path: Path) -> Stored:
    """perfkit's metadata of a Parquet file. Raises SourceError where it is missing or of a newer perfkit.

    Give the footer (``pyarrow.parquet.read_metadata``) where the file may be of stage "recorded": a schema lacks what
    was written at the end.
    """
    raw = (found.metadata or {}).get(KEY)
    if raw is None:
        raise SourceError(f"{path}: a Parquet file, but not written by perfkit", "give a run folder or a trace file")
    try:
        stored = msgspec.json.decode(raw, type=Stored)
    except msgspec.DecodeError as error:
        raise SourceError(f"{path}: damaged perfkit metadata ({error})", "record the run again") from None
    if stored.schema_version > schema.SCHEMA_VERSION:
        raise SourceError(f"{path}: written by a newer perfkit", "upgrade perfkit: pip install -U perfkit")
    return stored


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
