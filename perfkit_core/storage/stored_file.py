"""Reading of stored Parquet files. perfkit's metadata is in the footer, as JSON under the key ``perfkit``. Columns are
read on demand. Files are not kept open, so that thousands of ranks do not exhaust the file handles. If a file has
changed since its footer was read, reading a column raises SourceError."""

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
PARQUET_MAGIC: Final = b"PAR1"


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """perfkit's metadata in the footer of a Parquet file."""

    schema_version: int
    meta: TraceMeta
    quality: tuple[StoredFinding, ...]
    stage: Literal["trace", "recorded"] = "trace"  # "recorded" means not yet assembled
    rank: int | None = None  # rank of recorded events
    base_ns: int = 0  # time that is added to the starts of recorded events
    reader: str = ""  # name of the reader whose ``complete`` is called on loading; "" if none
    empty: tuple[str, ...] | None = None  # columns that contain only nulls; None if unknown

    def json(self) -> bytes:
        return msgspec.json.encode(self)


def is_ours(footer: pa.Schema | pq.FileMetaData) -> bool:
    return KEY in (footer.metadata or {})


def read_metadata(footer: pa.Schema | pq.FileMetaData, path: Path) -> Stored:
    """Return perfkit's metadata of a Parquet file. Raises SourceError if the metadata is missing, damaged or of a
    newer perfkit. For files of recorded events, pass the FileMetaData: their schema lacks perfkit's metadata."""
    raw = (footer.metadata or {}).get(KEY)
    if raw is None:
        raise SourceError(f"{path}: the Parquet file was not written by perfkit", "give a run folder or a trace file")
    try:
        stored = msgspec.json.decode(raw, type=Stored)
    except msgspec.DecodeError as error:
        raise SourceError(f"{path}: perfkit's metadata is damaged ({error})", "record the run again") from None
    if stored.schema_version > schema.SCHEMA_VERSION:
        raise SourceError(f"{path}: written by a newer perfkit", "upgrade perfkit: pip install -U perfkit")
    return stored


_AHEAD: Final = 2
"""Number of row groups that are decoded in advance."""


@dataclass(frozen=True, slots=True)
class StoredColumns(Columns):
    """The columns of a stored file. A column that cannot be read raises SourceError."""

    path: Path
    footer: pq.FileMetaData
    position: dict[str, int]  # positions of the columns in the file, by name
    empty: tuple[str, ...] | None  # columns that contain only nulls; None if unknown
    stamp: tuple[int, int]  # size and modification time of the file when its footer was read
    content: pa.Buffer | None = None  # all bytes of a remote file, because each read would be a request

    @property
    def num_rows(self) -> int:
        return int(self.footer.num_rows)

    def known(self, name: str) -> bool:
        if self.empty is not None:
            return name not in self.empty
        for group in range(self.footer.num_row_groups):
            column = self.footer.row_group(group).column(self.position[name])
            if column.is_stats_set and column.statistics.has_null_count:
                nulls = column.statistics.null_count
            else:
                nulls = self._read([group], [name]).column(0).null_count
            if nulls < column.num_values:
                return True
        return False

    def chunks(self, name: str) -> Iterator[pa.Array]:
        of_type = schema.SCHEMA.field(name).type
        groups = range(self.footer.num_row_groups)
        for table in parallel.in_order(lambda group: self._read([group], [name]), groups, _AHEAD + 1, _AHEAD):
            yield from table.column(0).cast(of_type).chunks

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        of_type = schema.SCHEMA.field(name).type
        groups = range(self.footer.num_row_groups)
        sizes = np.array([self.footer.row_group(group).num_rows for group in groups], np.int64)
        group = np.searchsorted(np.cumsum(sizes), rows, side="right")
        wanted = np.unique(group)
        if not len(wanted) or not self.known(name):
            return joined(constant(None, of_type, len(rows)))
        read = np.zeros(len(sizes), np.int64)
        read[wanted] = sizes[wanted]
        left_out = np.cumsum(sizes - read) - (sizes - read)
        column = self._read(wanted.tolist(), [name]).column(0).cast(of_type)
        return joined(column.take(pa.array(rows - left_out[group])))

    def table(self) -> pa.Table:
        table = self._read(list(range(self.footer.num_row_groups)), list(schema.COLUMN_NAMES))
        columns = {name: table.column(name).cast(schema.SCHEMA.field(name).type) for name in schema.COLUMN_NAMES}
        empty = {name: self.column(name) for name in schema.COLUMN_NAMES if not self.known(name)}
        return pa.Table.from_pydict(columns | empty, schema=schema.SCHEMA)

    def _read(self, groups: list[int], names: list[str]) -> pa.Table:
        try:
            if _stamp(self.path) != self.stamp:
                raise SourceError(f"{self.path}: the file was changed while it was being read", "load it again")
            # Each call opens the file, because threads must not share an open file.
            source = arrow_input(self.path) if self.content is None else pa.BufferReader(self.content)
            with source as opened, pq.ParquetFile(opened, metadata=self.footer) as file:
                return file.read_row_groups(groups, columns=names, use_threads=len(names) > 1)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"{self.path}: not a readable Parquet file ({error})", "record the run again") from None


def stored_columns(path: Path, footer: pq.FileMetaData, empty: tuple[str, ...] | None) -> StoredColumns:
    """Return the columns of the file with this footer. Raises SourceError if columns of the schema are missing."""
    position = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    missing = [name for name in schema.COLUMN_NAMES if name not in position]
    if missing:
        raise SourceError(f"{path}: columns are missing ({', '.join(missing)})", "record the run again")
    content = fetched(path) if is_remote(path) else None
    return StoredColumns(path, footer, position, empty, _stamp(path), content)


def _stamp(path: Path) -> tuple[int, int]:
    if is_remote(path):
        return 0, 0
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
