"""Access to the tables of an export. Exports differ by the version of Nsight Systems and by what was recorded: each
table and column may be missing. A file may be hostile, so views, virtual tables and generated columns are not read."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.system.paths import is_remote, open_binary
from perfkit_core.errors import SourceError
from perfkit_core.trace.storage.bytestream import CHUNK_BYTES, DAMAGED, GZIP_MAGIC, open_bytes

BATCH_ROWS: Final = 1 << 14
LEAST_FREE_BYTES: Final = 1 << 30
"""Free space that a compressed or remote export leaves on the disk to which it is unpacked: it may be hostile."""
HINT: Final = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
_OLDER: Final = "StringTable"
"""A table of nvprof, whose files have other tables with names of CUPTI."""
_EVENTS: Final = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")


class _Columns(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "NULL"


class Database:
    """An open export. ``columns`` maps each table to its columns. If ``partial`` is set, a damaged table is read up to
    the damage, and its name is added to ``damaged``; otherwise it raises SourceError."""

    def __init__(self, path: Path, connection: sqlite3.Connection, partial: bool) -> None:
        self.path, self.partial, self._connection = path, partial, connection
        self.damaged: dict[str, None] = {}
        self.columns: dict[str, _Columns] = {}
        # A hostile file may define a view or a virtual table that never ends, instead of a table.
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        for (name,) in itertools.chain.from_iterable(self._batches("sqlite_master", tables)):
            listed = self._batches(name, f"PRAGMA table_info({_quoted(name)})")  # without generated columns
            self.columns[name] = _Columns((column[1], _quoted(column[1])) for batch in listed for column in batch)

    @property
    def is_export(self) -> bool:
        return _OLDER not in self.columns and any(name.startswith(_EVENTS) for name in self.columns)

    def rows(self, table: str, cells: str, rest: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield the rows of ``SELECT cells FROM table rest``. A column is written as ``{column}``; it is null if the
        file lacks it. A missing table has no rows. Raises SourceError."""
        return itertools.chain.from_iterable(self._selected(table, cells, rest))

    def batches(self, table: str, cells: Mapping[str, str], where: str) -> Iterator[dict[str, list[Any]]]:
        """Yield at most BATCH_ROWS rows at a time, as lists by the keys of ``cells``. Raises SourceError."""
        for batch in self._selected(table, ", ".join(cells.values()), f"WHERE {where}"):
            yield dict(zip(cells, map(list, zip(*batch, strict=True)), strict=True))

    def value(self, table: str, cell: str, rest: str = "LIMIT 1") -> Any:
        """Return the cell of the first row, or None."""
        return next((row[0] for row in self.rows(table, cell, rest)), None)

    def texts(self, table: str, column: str) -> dict[int, str]:
        """Return the texts to which a column of ids refers."""
        if column not in self.columns.get(table, ()):
            return {}
        used = f"WHERE {{id}} IN (SELECT {_quoted(column)} FROM {_quoted(table)})"
        return {key: value for key, value in self.rows("StringIds", "{id}, CAST({value} AS TEXT)", used) if value}

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
            if not self.partial:
                raise SourceError(f"{self.path}: table {table} cannot be read ({error})", HINT) from None
            self.damaged[table] = None
        if batch:
            yield batch


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def may_be_export(path: Path) -> bool:
    """Return whether a local SQLite file has tables of an export, or cannot be read without more work."""
    with contextlib.suppress(SourceError), _connected(path, path, False) as database:
        return database.is_export
    return True


@contextlib.contextmanager
def opened(path: Path, partial: bool) -> Iterator[Database]:
    """Open a local, remote or compressed export for reading. Raises SourceError, also for other SQLite files."""
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(_connected(path, _local(path, stack), partial))
        if not database.is_export:
            if database.damaged:
                raise SourceError(f"{path}: the list of tables is damaged", HINT)
            raise SourceError(
                f"{path}: an SQLite file, but not an export of Nsight Systems: it has no table of CUDA or NVTX events",
                "perfkit reads files that nsys export --type sqlite wrote",
            )
        yield database


@contextlib.contextmanager
def _connected(path: Path, local: Path, partial: bool) -> Iterator[Database]:
    # an immutable file has no journal, so that nothing is written next to it
    address = f"{local.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True)
    except sqlite3.Error as error:
        raise SourceError(f"{path}: cannot be opened as SQLite ({error})", HINT) from None
    with contextlib.closing(connection):
        connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
            connection.execute(f"PRAGMA {setting}")
        yield Database(path, connection, partial)


def _local(path: Path, stack: contextlib.ExitStack) -> Path:
    if not is_remote(path):
        with open_binary(path) as file:
            if file.peek(2)[:2] != GZIP_MAGIC:
                return path
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-"))) / "export.sqlite"
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
        raise SourceError(f"{path}: damaged or truncated data ({error})", HINT) from None
    return copy
