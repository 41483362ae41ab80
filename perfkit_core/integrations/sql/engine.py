"""duckdb in memory. A statement can access no file, no network and no Python variable, and cannot change settings.

The module imports little, because each process for one statement imports it
(:mod:`perfkit_core.integrations.sql.bounded`)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.runtime import parallel
from perfkit_core.base.system import processes
from perfkit_core.errors import UsageError, spelled_like

MEMORY_BYTES: Final = 4 * 10**9
_SETTINGS: Final = {
    "enable_external_access": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": f"{MEMORY_BYTES}B",
    "threads": str(parallel.threads()),
}
_READING: Final = ("SELECT", "MULTI")
"""Accepted kinds of statements. MULTI is PIVOT."""
_ONLY_TABLES: Final = "a statement reads only the tables of the profile: it has no access to files and the network"


class Engine:
    """A connection, and the names of the tables that a statement may use. Its methods raise UsageError."""

    def __init__(self, tables: Sequence[str]) -> None:
        try:
            import duckdb
        except ModuleNotFoundError as error:
            if error.name != "duckdb":
                raise
            raise UsageError("SQL requires duckdb", 'run pip install "perfkit[sql]"') from None
        self._tables = tables
        self._failure = duckdb.Error
        self._connection = _connected(duckdb)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def named(self, statement: str) -> list[str]:
        """Return the tables that a statement names. For statements that duckdb cannot resolve without the tables, such
        as PIVOT, return the tables whose name occurs as a word. Raises UsageError for a statement that does not read.
        """
        try:
            statements = self._connection.extract_statements(statement)
        except self._failure as error:
            raise self._in_one_line(error, statement) from None
        if len(statements) != 1 or statements[0].type.name not in _READING:
            raise UsageError("not one statement that reads", "write one SELECT; nothing can be changed or written")
        try:
            words: Iterable[str] = self._connection.get_table_names(statement)
        except self._failure:
            words = re.findall(r"\w+", statement)
        lower = {word.lower() for word in words}
        named = [name for name in self._tables if name in lower]
        if not named and re.match(r"\s*show\b", statement, re.IGNORECASE):
            hint = "perfkit sql SOURCE lists the tables; DESCRIBE lists the columns of a table"
            raise UsageError("SHOW finds no table, because tables are made when a statement names them", hint)
        return named

    def rows(self, statement: str, tables: Mapping[str, pa.Table], limit: int | None) -> pa.Table:
        """Return the rows of a statement over the tables, at most ``limit``."""
        try:
            for name, table in tables.items():
                self._connection.register(name, table)
            relation = self._connection.sql(statement)
            return _exact(_readable(relation if limit is None else relation.limit(limit)))
        except self._failure as error:
            raise self._in_one_line(error, statement) from None
        except MemoryError:
            raise UsageError(f"the statement needs more than {_GB} of memory", "select fewer rows") from None

    def _in_one_line(self, error: Exception, statement: str) -> UsageError:
        """Return an error of duckdb without the excerpt of the statement. The hint is known here, or that of duckdb."""
        what, *hints = re.split(r"\s*\n\s*", re.split(r"\n\s*LINE \d+:", str(error))[0].strip())
        missing = re.search(r"Table with name (\S+) does not exist", what)
        column = re.search(r'Referenced column "(.*)" (?:was )?not found', what)
        if missing:
            hints = [spelled_like(missing[1], self._tables, "tables")]
        elif column and f'"{column[1]}"' in statement:
            hints = [f"text is written in single quotes: '{column[1]}'; double quotes name a column.", *hints]
        elif "Out of Memory" in what:
            what, hints = f"the statement needs more than {_GB} of memory ({what})", ["select fewer rows"]
        elif "has been disabled" in what or "disabled by configuration" in what:
            hints = [_ONLY_TABLES]
        return UsageError(what.rstrip("!"), " ".join(hints))


class LimitedEngine(Engine):
    """An engine in a process that does nothing else: the process can allocate as much memory as duckdb may use. duckdb
    itself does not look at its limit while it computes a single value, such as a long list."""

    def named(self, statement: str) -> list[str]:
        with processes.memory_limit(MEMORY_BYTES):
            return super().named(statement)

    def rows(self, statement: str, tables: Mapping[str, pa.Table], limit: int | None) -> pa.Table:
        with processes.memory_limit(MEMORY_BYTES):
            return super().rows(statement, tables, limit)


_GB: Final = f"{MEMORY_BYTES // 10**9} GB"


_NUMBERS_AND_TEXTS: Final = frozenset(
    {
        "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger",
        "ubigint", "float", "double", "decimal", "varchar", "null",
    }
)  # fmt: skip
_NESTED: Final = frozenset({"list", "array", "struct", "map", "tuple"})
_DATES: Final = "date", "timestamp"
_USUAL_DATE: Final = r"^\d{4}-\d\d-\d\d( [^(]*)?$"
"""Text of a date that Python can represent: not infinite, and from year 1 to 9999."""


def _readable(relation: Any) -> pa.Table:
    """Return the rows of a relation. Columns that Arrow or pandas cannot represent exactly become text: types such as
    intervals and unions, and dates outside the years 1 to 9999."""
    types = {f"c{number}": type_ for number, type_ in enumerate(relation.types)}
    columns, dates = list(types), [name for name, type_ in types.items() if type_.id.startswith(_DATES)]
    cells = [name if name in dates else _cell(name, type_) for name, type_ in types.items()]
    if cells == columns and not dates:
        return relation.to_arrow_table()
    texts = [f"cast({name} as varchar)" for name in dates]
    table = relation.query("r", f"select {', '.join(cells + texts)} from r as r({', '.join(columns)})").to_arrow_table()
    for name, at in zip(dates, range(len(columns), table.num_columns), strict=True):
        if pc.all(pc.match_substring_regex(table.column(at), _USUAL_DATE)).as_py() is False:
            table = table.set_column(int(name[1:]), name, table.column(at))
    return table.select(range(len(columns))).rename_columns(relation.columns)


def _cell(name: str, type_: Any) -> str:
    if type_.id == "decimal" and dict(type_.children)["scale"]:
        return f"cast({name} as double)"  # Arrow does not round correctly
    return name if _is_plain(type_) else f"cast({name} as varchar)"


def _is_plain(type_: Any) -> bool:
    """Return whether a type of duckdb is a number, a text, or a list or structure of these."""
    if type_.id not in _NESTED:
        return type_.id in _NUMBERS_AND_TEXTS
    return all(_is_plain(child) for _, child in type_.children if not isinstance(child, int))


def _exact(table: pa.Table) -> pa.Table:
    """Return the table without decimals, which duckdb returns for sums. Whole numbers become int64 if they fit."""
    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            with contextlib.suppress(pa.ArrowInvalid):  # more than int64 can hold
                table = table.set_column(at, field.name, table.column(at).cast(pa.int64()))
    return table


def _connected(duckdb: Any) -> Any:
    connection = duckdb.connect(config=_SETTINGS)
    connection.execute("set disabled_filesystems = 'LocalFileSystem'")
    connection.execute("set lock_configuration = true")
    return connection
