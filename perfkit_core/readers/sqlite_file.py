"""Access to the tables of SQLite files that profilers write.

The files differ by the version of the profiler and by what was recorded: each table and column may be missing. A file
may be hostile, so views, virtual tables and generated columns are not read. Nothing is written next to a file."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms.arrays import IntArray, new_array
from perfkit_core.base.language.messages import message
from perfkit_core.base.system.paths import is_remote, open_binary
from perfkit_core.errors import SourceError
from perfkit_core.readers import sqlite_pages
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage.bytestream import CHUNK_BYTES, DAMAGED, GZIP_MAGIC, open_bytes

BATCH_ROWS: Final = 1 << 14
LEAST_FREE_BYTES: Final = 1 << 30
"""Free space that a compressed or remote file leaves on the disk to which it is unpacked: it may be hostile."""
MAGIC: Final = b"SQLite format 3\0"
_MOST_BYTES: Final = 1 << 30
"""Size of a file whose tables of integers are read from a copy in memory."""
_JOURNAL_VERSION: Final = slice(18, 20)
_WRITE_AHEAD: Final = b"\2\2"
"""Bytes of the header of a file whose last changes are in a file of their own, NAME-wal, until it is closed."""


@dataclass(frozen=True, slots=True)
class SqliteFormat:
    """A format of SQLite files. ``recognises(columns)`` says whether a file with these tables has the format. ``other``
    completes the error about files that do not, and ``hint`` is for damaged files."""

    recognises: Callable[[Mapping[str, Mapping[str, str]]], bool]
    other: str
    other_hint: str
    hint: str


class _Columns(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "NULL"


class Database:
    """An open file. ``columns`` maps each table to its columns. If ``partial`` is set, a damaged table is read up to
    the damage, and its name is added to ``damaged``; otherwise it raises SourceError with the hint."""

    def __init__(self, path: Path, local: Path, connection: sqlite3.Connection, partial: bool, hint: str) -> None:
        self.path, self.partial, self._local, self._connection, self._hint = path, partial, local, connection, hint
        self.damaged: dict[str, None] = {}
        self.columns: dict[str, _Columns] = {}
        self._layouts: dict[str, tuple[int, list[str], int]] = {}
        # A hostile file may define a view or a virtual table that never ends, instead of a table.
        roots = set[int]()
        cells = "name, rootpage, INSTR(sql, REPLACE(name, '\"', '\"\"'))"
        tables = f"SELECT {cells} FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'"
        for name, root, names_itself in itertools.chain.from_iterable(self._batches("sqlite_master", tables)):
            if not names_itself or root in roots:  # SQLite does not see a letter in the other case, or another page
                self._damage(name, "its definition is damaged")
            roots.add(root)
            listed = [*itertools.chain(*self._batches(name, f"PRAGMA table_xinfo({_quoted(name)})"))]
            stored = [column[1] for column in listed if not column[-1]]  # without generated columns
            self.columns[name] = _Columns((column, _quoted(column)) for column in stored)
            keys = [at for at, column in enumerate(listed) if column[5]]
            alias = keys[0] if len(keys) == 1 and str(listed[keys[0]][2]).upper() == "INTEGER" else -1
            if len(stored) == len(listed):
                self._layouts[name] = root, stored, alias

    def rows(self, table: str, cells: str, rest: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield the rows of ``SELECT cells FROM table rest``. A column is written as ``{column}``; it is null if the
        file lacks it. A missing table has no rows. Raises SourceError."""
        return itertools.chain.from_iterable(self._selected(table, cells, rest))

    def batches(self, table: str, cells: Mapping[str, str], where: str) -> Iterator[dict[str, list[Any]]]:
        """Yield at most BATCH_ROWS rows at a time, as lists by the keys of ``cells``. Raises SourceError."""
        for batch in self._selected(table, ", ".join(cells.values()), f"WHERE {where}"):
            yield dict(zip(cells, map(list, zip(*batch, strict=True)), strict=True))

    def integers(self, table: str, columns: Mapping[str, str]) -> dict[str, IntArray]:
        """Return integer columns of all rows, shape (rows,), by the keys of ``columns``, which maps them to names of
        columns. Null and columns that the file lacks are -1. Raises SourceError."""
        stored = list(dict.fromkeys(name for name in columns.values() if name in self.columns.get(table, ())))
        cells = self._from_pages(table, stored) if stored else np.empty((0, 0), np.int64)
        if cells is None:
            self.check(table)
            selected = {name: f"IFNULL(CAST({{{name}}} AS INTEGER), -1)" for name in stored}
            parts = [[*map(np.array, batch.values())] for batch in self.batches(table, selected, "TRUE")]
            empty = np.empty((len(stored), 0), np.int64)
            cells = np.concatenate([empty, *(np.array(part, np.int64) for part in parts)], axis=1)
        missing = np.full(cells.shape[1], -1, np.int64)
        return {key: cells[stored.index(name)] if name in stored else missing for key, name in columns.items()}

    def _from_pages(self, table: str, columns: Sequence[str]) -> IntArray | None:
        """Return integer columns, shape (columns, rows), or None if SQLite must read the table."""
        root, order, alias = self._layouts.get(table, (0, [], -1))
        if not root or self._content is None:
            return None
        return sqlite_pages.integers(self._content, root, [order.index(name) for name in columns], alias)

    @functools.cached_property
    def _content(self) -> npt.NDArray[np.uint8] | None:
        """The bytes of the file, or None for a large file."""
        size = self._local.stat().st_size
        if size > _MOST_BYTES:
            return None
        content = new_array(size + sqlite_pages.PAD, np.uint8)
        content[size:] = 0
        with open_binary(self._local) as file:
            return content if file.readinto(content[:size].data) == size else None

    def check(self, table: str) -> None:
        """Look for damage in a table that SQLite would read without an error. Raises SourceError."""
        problems = [*itertools.chain(*self._batches(table, f"PRAGMA quick_check({_quoted(table)})"))]
        if problems != [("ok",)] and table not in self.damaged:
            self._damage(table, problems[0][0])

    def _damage(self, table: str, problem: object) -> None:
        if not self.partial:
            raise SourceError(f"{self.path}: table {table} cannot be read ({problem})", self._hint) from None
        self.damaged[table] = None

    def value(self, table: str, cell: str, rest: str = "LIMIT 1") -> Any:
        """Return the cell of the first row, or None."""
        return next((row[0] for row in self.rows(table, cell, rest)), None)

    def unread(self, is_read: Callable[[str], bool], times: Set[str]) -> dict[str, int]:
        """Return the number of rows of each table with one of the columns ``times`` that is not read."""
        counts = {
            name: self.value(name, "COUNT(*)")
            for name, columns in self.columns.items()
            if columns.keys() & times and not is_read(name)
        }
        return {name: count for name, count in counts.items() if isinstance(count, int) and count}

    def findings(self, unread: Collection[str]) -> list[Finding]:
        """Return data-quality warnings about damaged tables, and about tables with events that are not read."""
        findings = damaged_tables(self.damaged)
        text = message("perfkit does not read these tables: {names:list}", names=[*unread])
        return [*findings, Finding("tables-not-read", text, note=True)] if unread else findings

    def _selected(self, table: str, cells: str, rest: str) -> Iterator[list[tuple[Any, ...]]]:
        if table in self.columns:
            columns = self.columns[table]
            query = f"SELECT {cells.format_map(columns)} FROM {_quoted(table)} {rest.format_map(columns)}"
            yield from self._batches(table, query)

    def _batches(self, table: str, query: str) -> Iterator[list[tuple[Any, ...]]]:
        batch: list[tuple[Any, ...]] = []
        try:
            rows = self._connection.execute(query)
            while True:
                batch.extend(itertools.islice(rows, BATCH_ROWS))  # keeps the rows before a damaged place
                if not batch:
                    return
                yield batch
                batch = []
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the text of an error may be damaged, too
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _IN_USE:
                raise _in_use(self.path) from None
            self._damage(table, error)
        if batch:
            yield batch


def damaged_tables(names: Collection[str]) -> list[Finding]:
    text = message("these tables are damaged and were read only in part: {names:list}", names=[*names])
    return [Finding("truncated", text)] if names else []


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_IN_USE: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
"""Error codes if another process writes the file, or was killed while it did."""


def _in_use(path: Path) -> SourceError:
    return SourceError(
        f"{path}: another process writes this file, or was killed while it did",
        "wait until it has finished; if it was killed, let it write the file again",
    )


def may_have(path: Path, file_format: SqliteFormat, if_unreadable: bool = True) -> bool:
    """Return whether a local SQLite file has the format, or ``if_unreadable`` if more work is needed to read it."""
    with contextlib.suppress(SourceError), _connected(path, path, False, file_format.hint) as database:
        return file_format.recognises(database.columns)
    return if_unreadable


@contextlib.contextmanager
def opened(path: Path, partial: bool, file_format: SqliteFormat) -> Iterator[Database]:
    """Open a local, remote or compressed file for reading. Raises SourceError, also for SQLite files of another
    format."""
    with contextlib.ExitStack() as stack:
        local = _local(path, stack, file_format.hint)
        database = stack.enter_context(_connected(path, local, partial, file_format.hint))
        if not file_format.recognises(database.columns):
            if database.damaged:
                raise SourceError(f"{path}: the list of tables is damaged", file_format.hint)
            raise SourceError(f"{path}: an SQLite file, but {file_format.other}", file_format.other_hint)
        yield database


@contextlib.contextmanager
def _connected(path: Path, local: Path, partial: bool, hint: str) -> Iterator[Database]:
    address = f"{local.absolute().as_uri()}?mode=ro"
    with open_binary(local) as file:
        header = file.read(_JOURNAL_VERSION.stop)
    before = _state(local)
    if header[_JOURNAL_VERSION] == _WRITE_AHEAD:
        if before[-1]:
            raise _in_use(path)
        # SQLite would make a log next to the file, even to read it. In other files, it respects the locks of writers.
        address += "&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=0)
    except sqlite3.Error as error:
        raise SourceError(f"{path}: cannot be opened as SQLite ({error})", hint) from None
    with contextlib.closing(connection):
        connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
            connection.execute(f"PRAGMA {setting}")
        yield Database(path, local, connection, partial, hint)
        if _state(local) != before:  # the tables may be of different times
            raise _in_use(path)


def _state(path: Path) -> tuple[int, int, int]:
    """Return the size and the time of the last change of a file, and the size of its log."""
    stat, log = path.stat(), path.with_name(f"{path.name}-wal")
    return stat.st_size, stat.st_mtime_ns, log.stat().st_size if log.exists() else 0


def _local(path: Path, stack: contextlib.ExitStack, hint: str) -> Path:
    if not is_remote(path):
        with open_binary(path) as file:
            if file.peek(2)[:2] != GZIP_MAGIC:
                return path
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-"))) / "copy.sqlite"
    try:
        with open_bytes(path) as content, copy.open("wb") as file:
            while piece := content.read(CHUNK_BYTES):
                if shutil.disk_usage(copy.parent).free < LEAST_FREE_BYTES:
                    raise SourceError(
                        f"{path}: unpacking it needs more than {file.tell() >> 20} MiB in {copy.parent.parent}",
                        "unpack it on a larger disk, or set TMPDIR",
                    )
                file.write(piece)
    except DAMAGED as error:
        raise SourceError(f"{path}: damaged or truncated data ({error})", hint) from None
    return copy
