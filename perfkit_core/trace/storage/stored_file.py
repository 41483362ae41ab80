"""Reading of stored Parquet files. perfkit's metadata is in the footer, as JSON under the key ``perfkit``. Columns are
read on demand. Files are not kept open, so that thousands of ranks do not exhaust the file handles. If a file has
changed since its footer was read, reading a column raises SourceError.

A side table is an Arrow stream before the footer, which is read when the table is first used. The index at the end of
the file says where (:mod:`perfkit_core.trace.storage.checksums`).

A file may be damaged or come from a stranger. All bytes are compared with their checksums, and all cells that are read
pass the gate of :mod:`perfkit_core.trace.model.gate`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit_core.base.algorithms.arrays import IntArray, constant, joined
from perfkit_core.base.runtime import parallel
from perfkit_core.base.system import machine
from perfkit_core.base.system.outside_text import decode_json
from perfkit_core.base.system.paths import arrow_input, fetched, is_remote
from perfkit_core.errors import SourceError
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.event_columns import Columns, picked_by_part, sliced
from perfkit_core.trace.model.gate import checked, checked_side_table
from perfkit_core.trace.model.meta import StoredFinding, TraceMeta
from perfkit_core.trace.model.side_tables import ALL, Load, SideTables
from perfkit_core.trace.storage import checksums
from perfkit_core.trace.storage.checksums import Extent
from perfkit_core.trace.storage.older_format import OlderFacts

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=True)


def encoded(tables: SideTables) -> dict[str, bytes]:
    """Return the bytes of each side table."""
    contents = {}
    for name in tables.names:
        table, sink = tables[name], pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as stream:
            stream.write_table(table)
        contents[name] = sink.getvalue().to_pybytes()
    return contents


def tables(file: StoredFile) -> SideTables:
    """Return the side tables of a stored file. Reading a table that is damaged or impossible raises SourceError. Tables
    of newer versions are left out. For a file of format 1, raises SourceError if its metadata is impossible."""
    if file.stored.schema_version == 1:
        try:
            return file.older_facts().tables()
        except ValueError as error:
            raise unreadable(file.path, f"perfkit's metadata is damaged: {error}") from None
    known: Mapping[str, Extent] = {name: extent for name, extent in file.tables.items() if name in ALL}
    return SideTables({name: _load(file, name, extent) for name, extent in known.items()})


def _load(file: StoredFile, name: str, extent: Extent) -> Load:
    def load() -> pa.Table:
        try:
            file.check_unchanged()
            with arrow_input(file.path) if file.content is None else pa.BufferReader(file.content) as opened:
                content = extent.read(opened)
            with pa.ipc.open_stream(content) as stream:
                table = stream.read_all()
            rows = None if file.stored.stage == "recorded" else file.first_row[-1]
            return checked_side_table(ALL[name], table, rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable(file.path, f"the side table {name}: {error}") from None

    return load


KEY: Final = b"perfkit"
_REQUIRED: Final = frozenset(column.name for column in schema.COLUMNS if not column.nullable)


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """perfkit's metadata in the footer of a Parquet file."""

    schema_version: int
    meta: TraceMeta
    quality: tuple[StoredFinding, ...]
    stage: Literal["trace", "recorded"] = "trace"  # "recorded" means not yet assembled
    rank: schema.Rank | None = None  # rank of recorded events
    base_ns: schema.Int64 = 0  # time that is added to the starts of recorded events
    reader: str = ""  # name of the reader whose ``complete`` is called on loading; "" if none
    empty: tuple[str, ...] | None = None  # columns that contain only nulls; None if unknown
    checksums: bool = False  # whether the file has checksums; files of older versions have none

    def json(self) -> bytes:
        return msgspec.json.encode(self)


class _Older(msgspec.Struct, frozen=True):
    meta: OlderFacts


def is_ours(footer: pq.FileMetaData) -> bool:
    return KEY in (footer.metadata or {})


def unreadable(path: Path, error: object) -> SourceError:
    hint = "copy the file again; to read a folder without its damaged files, use --partial"
    return SourceError(f"{path}: not a readable Parquet file ({error})", hint)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A stored file whose footer has been read. Several threads may use the same object."""

    path: Path
    footer: pq.FileMetaData
    stored: Stored
    position: Mapping[str, int]  # positions of the columns in the file, by name
    first_row: Sequence[int]  # the row with which each row group begins, and the number of rows
    chunks: checksums.Checksums | None  # checksums of the column chunks, row group by row group; None in older files
    tables: Mapping[str, checksums.Extent]  # side tables by name
    stamp: tuple[int, int]  # size and modification time of the file when its footer was read
    content: pa.Buffer | None = None  # all bytes of a remote file, because each read would be a request

    def with_content(self) -> StoredFile:
        """Return the file with all its bytes, if it is remote. Raises SourceError."""
        return replace(self, content=fetched(self.path)) if is_remote(self.path) else self

    def older_facts(self) -> OlderFacts:
        """Return the facts in the metadata of a file of format 1. Raises ValueError."""
        if self.stored.schema_version > 1:
            return OlderFacts()
        return decode_json(self.footer.metadata[KEY], _Older).meta

    def require(self, names: Sequence[str]) -> None:
        """Raise SourceError if a column is missing."""
        missing = [name for name in names if name not in self.position]
        if missing:
            raise unreadable(self.path, f"columns are missing: {', '.join(missing)}")

    def read(self, groups: range, fields: pa.Schema) -> pa.Table:
        """Return columns of consecutive row groups, after the checks of event tables. Raises SourceError if a column is
        missing or damaged, a cell is invalid, or the file has changed."""
        self.require(fields.names)
        first = self.first_row[groups.start]
        rows = self.first_row[groups.stop] - first
        machine.require(_CELL_BYTES * rows * len(fields), f"columns of {self.path.name}")
        try:
            self.check_unchanged()
            # Each call opens the file, because threads must not share an open file.
            source = arrow_input(self.path) if self.content is None else pa.BufferReader(self.content)
            with source as opened:
                self._verify(opened, groups, fields.names)
                with pq.ParquetFile(opened, metadata=self.footer) as file:
                    table = file.read_row_groups(groups, columns=fields.names, use_threads=len(fields) > 1)
            if len(table) != rows:
                raise ValueError("the number of rows differs from the footer")
            return checked(table, fields, self.stored.meta.ranks or None, first, self.first_row[-1])
        except (pa.ArrowException, OSError, ValueError) as error:
            raise unreadable(self.path, error) from None

    def check_unchanged(self) -> None:
        """Raise SourceError if the file has changed since its footer was read."""
        if _stamp(self.path) != self.stamp:
            raise SourceError(f"{self.path}: the file was changed while it was being read", "load it again")

    def _verify(self, opened: pa.NativeFile, groups: Sequence[int], names: Sequence[str]) -> None:
        if self.chunks is None:
            return
        for group in groups:
            for name in names:
                column = self.position[name]
                begin, size = checksums.extent(self.footer, group, column)
                opened.seek(begin)
                if checksums.crc(opened.read_buffer(size)) != self.chunks[group * len(self.position) + column]:
                    raise ValueError(f"the column {name} is damaged")


def read_footer(path: Path) -> StoredFile:
    """Read the footer of a stored file. Raises SourceError if it is missing, damaged or of a newer perfkit."""
    try:
        stamp = _stamp(path)
        with arrow_input(path) as file:
            end = checksums.read_end(file)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, error) from None
    footer = end.footer
    raw = (footer.metadata or {}).get(KEY)
    if raw is None:
        raise SourceError(f"{path}: the Parquet file was not written by perfkit", "give a run folder or a trace file")
    try:
        stored = decode_json(raw, Stored)
    except ValueError as error:
        raise unreadable(path, f"perfkit's metadata is damaged: {error}") from None
    if stored.schema_version > schema.SCHEMA_VERSION:
        raise SourceError(f"{path}: written by a newer perfkit", "upgrade perfkit: pip install -U perfkit")
    if stored.schema_version < 1:
        raise unreadable(path, f"perfkit's metadata is damaged: there is no version {stored.schema_version}")
    if stored.checksums and end.chunks is None:
        raise unreadable(path, "no checksums: it is damaged, or another program has rewritten it")
    sizes = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    first_row = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
    if min(sizes, default=0) < 0 or first_row[-1] != footer.num_rows:
        raise unreadable(path, "the numbers of rows in the footer do not agree")
    position = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    return StoredFile(path, footer, stored, position, first_row, end.chunks, end.tables, stamp)


_CELL_BYTES: Final = 8
_AHEAD: Final = 2
"""Number of row groups that are decoded in advance."""


@dataclass(frozen=True, slots=True)
class StoredColumns(Columns):
    """The columns of a stored trace. A column that cannot be read, or has invalid cells, raises SourceError."""

    file: StoredFile

    @property
    def num_rows(self) -> int:
        return self.file.first_row[-1]

    @property
    def _groups(self) -> range:
        return range(self.file.footer.num_row_groups)

    def has_values(self, name: str) -> bool:
        if self.file.stored.empty is not None:
            return name not in self.file.stored.empty
        for group in self._groups:
            column = self.file.footer.row_group(group).column(self.file.position[name])
            if column.is_stats_set and column.statistics.has_null_count:
                nulls = column.statistics.null_count
            else:
                nulls = self._cells(group, name).null_count
            if nulls < column.num_values:
                return True
        return False

    def magnitude(self, name: str) -> int:
        largest = 0
        for group in self._groups:
            column = self.file.footer.row_group(group).column(self.file.position[name])
            if not column.is_stats_set or not column.statistics.has_null_count:
                return Columns.magnitude(self, name)
            if column.statistics.has_min_max and isinstance(column.statistics.min, int):
                largest = max(largest, abs(column.statistics.min), abs(column.statistics.max))
            elif column.statistics.null_count < column.num_values:
                return Columns.magnitude(self, name)
        return largest

    def chunks(self, name: str) -> Iterator[pa.Array]:
        return self._chunks(name, self._groups)

    def between(self, name: str, first: int, end: int) -> Iterator[pa.Array]:
        first_row = self.file.first_row
        groups = range(bisect_right(first_row, first) - 1, bisect_left(first_row, end))
        begin = first_row[groups.start]
        return sliced(self._chunks(name, groups), first - begin, end - begin)

    def _chunks(self, name: str, groups: range) -> Iterator[pa.Array]:
        for cells in parallel.in_order(lambda group: self._cells(group, name), groups, _AHEAD + 1, _AHEAD):
            yield from cells.chunks

    def check(self) -> None:
        """Read all columns. Raises SourceError if a part of the file is damaged or a cell is invalid."""
        for group in self._groups:
            self.file.read(range(group, group + 1), schema.SCHEMA)

    def pick(self, name: str, rows: np.ndarray[Any, np.dtype[Any]]) -> pa.Array:
        if not self.has_values(name):
            return joined(constant(None, schema.SCHEMA.field(name).type, len(rows)))

        def pick(group: int, part_rows: IntArray) -> pa.Array:
            return joined(self._cells(group, name)).take(pa.array(part_rows))

        return picked_by_part(np.array(self.file.first_row, np.int64), rows, pick, name)

    def table(self) -> pa.Table:
        table = self.file.read(self._groups, schema.SCHEMA)
        columns = {name: table.column(name) for name in schema.COLUMN_NAMES}
        empty = {name: self.column(name) for name in schema.COLUMN_NAMES if not self.has_values(name)}
        return pa.Table.from_pydict(columns | empty, schema=schema.SCHEMA)

    def _cells(self, group: int, name: str) -> pa.ChunkedArray:
        return self.file.read(range(group, group + 1), pa.schema([schema.SCHEMA.field(name)])).column(0)


def stored_columns(file: StoredFile, check: bool = False) -> StoredColumns:
    """Return the columns of a stored trace. Raises SourceError if columns of the schema are missing. With ``check``,
    all columns are read, and a damaged one raises SourceError."""
    file.require(schema.COLUMN_NAMES)
    if file.first_row[-1] and not _REQUIRED.isdisjoint(file.stored.empty or ()):
        raise unreadable(file.path, "a column that every event needs is empty")
    columns = StoredColumns(file.with_content())
    if check:
        columns.check()
    return columns


def _stamp(path: Path) -> tuple[int, int]:
    if is_remote(path):
        return 0, 0
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
