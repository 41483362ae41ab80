"""A SQL statement over the tables of a profile, which duckdb runs in memory.

A statement reads only these tables: it can access no file, no network and no Python variable, and cannot change
settings.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.language.messages import say
from perfkit_core.model import columns
from perfkit_core.model.columns import Column
from perfkit_core.model.report_data import Report, Section, Source
from perfkit_core.model.trace import Trace
from perfkit_core.runtime import parallel
from perfkit_core.sql import table_list
from perfkit_core.sql.table_list import Profile
from perfkit_core.system.paths import PathLike

_SETTINGS: Final = {
    "enable_external_access": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "4GB",
    "threads": str(parallel.threads()),
}
_READING: Final = ("SELECT", "MULTI")
"""Accepted kinds of statements. MULTI is PIVOT."""
_TYPES: Final = {
    pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(), pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(), pa.float32(): pd.Float32Dtype(), pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Result:
    """The rows that a statement returned. ``columns`` declares the columns of ``table``. A column has the unit of the
    column with the same name in a table of the statement, or else the unit that its name ends with."""

    table: pa.Table
    columns: tuple[Column, ...]
    source: Source  # facts about the profile

    def to_pandas(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.table.to_pandas(types_mapper=_TYPES.get)
        return frame


def query(profile: Trace | PathLike | Sequence[PathLike], statement: str, limit: int | None = None) -> pd.DataFrame:
    """Return the rows of a SQL statement in the dialect of duckdb. ``docs/sql.md`` lists the tables and columns.

    - ``profile``: a Trace, or one or more sources as for :func:`perfkit_core.load`
    - ``limit``: maximum number of rows

    Times are integers in ns, sizes are integers in bytes, and unknown values are NA. Raises SourceError. Raises
    UsageError if the statement has an error, or if duckdb is not installed.
    """
    return run(profile, statement, limit).to_pandas()


sql = query
"""The name of :func:`query` in the package ``perfkit``."""


def report(
    profile: Profile,
    statement: str,
    limit: int | None = None,
    shown: int | None = None,
    partial: bool = False,
    seconds: float | None = None,
) -> Report:
    """Return a report with the result of a statement. ``limit``: maximum number of rows. ``shown``: maximum number of
    rows in text, Markdown and HTML. ``seconds``: time limit of the statement. Raises as :func:`query`."""
    result = run(profile, statement, limit, partial, seconds)
    empty = say("The statement returned no rows.")
    table = Section("result", say("Result"), result.to_pandas(), empty=empty, limit=shown, columns=result.columns)
    return Report(result.source.path, (result.source,), (table,))


def run(
    profile: Profile, statement: str, limit: int | None = None, partial: bool = False, seconds: float | None = None
) -> Result:
    """Return the result of a statement. ``partial``: use the readable part of damaged files. ``seconds``: time limit of
    the statement. Raises as :func:`query`."""
    try:
        import duckdb
    except ImportError:
        raise UsageError("SQL requires duckdb", 'run pip install "perfkit[sql]"') from None
    with _connected(duckdb) as connection:
        try:
            _check(connection.extract_statements(statement))
            named = _named_tables(connection, duckdb, statement)
            if not named and re.match(r"\s*show\b", statement, re.IGNORECASE):
                hint = "perfkit sql SOURCE lists the tables; DESCRIBE lists the columns of a table"
                raise UsageError("SHOW finds no table, because tables are made when a statement names them", hint)
            tables, source = table_list.computed(profile, named, partial)
            for name, table in tables.items():
                connection.register(name, table)
            with _interrupted(connection, seconds):
                relation = connection.sql(statement)
                found: pa.Table = (relation if limit is None else relation.limit(limit)).to_arrow_table()
        except duckdb.InterruptException:
            hint = "select fewer rows or join on fewer columns"
            raise UsageError(f"the statement took longer than {seconds:g} s", hint) from None
        except duckdb.Error as error:
            raise _in_one_line(error) from None
    known = columns.by_name(column for name in reversed(named) for column in table_list.declarations(name))
    declared = [known.get(name) or _undeclared(name) for name in found.column_names]
    names = _distinct(found.column_names)
    renamed = tuple(replace(column, name=name) for column, name in zip(declared, names, strict=True))
    return Result(_exact(found.rename_columns(names)), renamed, source)


def _connected(duckdb: Any) -> Any:
    connection = duckdb.connect(config=_SETTINGS)
    connection.execute("set disabled_filesystems = 'LocalFileSystem'")
    connection.execute("set lock_configuration = true")
    return connection


@contextlib.contextmanager
def _interrupted(connection: Any, seconds: float | None) -> Iterator[None]:
    """Interrupt the connection after a number of seconds, if the block is still running."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check(statements: Sequence[Any]) -> None:
    if len(statements) != 1 or statements[0].type.name not in _READING:
        raise UsageError("not one statement that reads", "write one SELECT; nothing can be changed or written")


def _named_tables(connection: Any, duckdb: Any, statement: str) -> list[str]:
    """Return the tables of a profile that a statement names. For statements that duckdb cannot resolve without the
    tables, such as PIVOT, return the tables whose name occurs as a word."""
    try:
        words: Iterable[str] = connection.get_table_names(statement)
    except duckdb.Error:
        words = re.findall(r"\w+", statement)
    lower = {word.lower() for word in words}
    return [name for name in table_list.known() if name in lower]


def _exact(table: pa.Table) -> pa.Table:
    """Return the table without decimals, which duckdb returns for sums. Whole numbers become int64 if they fit."""
    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            whole = field.type.scale == 0
            with contextlib.suppress(pa.ArrowInvalid):  # more than int64 can hold
                values = table.column(at).cast(pa.int64() if whole else pa.float64())
                table = table.set_column(at, field.name, values)
    return table


def _distinct(names: Iterable[str]) -> list[str]:
    """Return the names of columns, with numbers added to repeated names: a, a_1."""
    distinct: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        distinct[name if name not in distinct else next(each for each in numbered if each not in distinct)] = None
    return list(distinct)


def _undeclared(name: str) -> Column:
    """Return the declaration of a column that no table has. Expressions keep their text as heading, without a unit."""
    return columns.named(name) if name.isidentifier() else Column(name, name, kind=columns.KEY, proper=True)


def _in_one_line(error: Exception) -> UsageError:
    """Return an error of duckdb without the excerpt of the statement. The hint is the one of duckdb."""
    what, *hints = re.split(r"\s*\n\s*", re.split(r"\n\s*LINE \d+:", str(error))[0].strip())
    missing = re.search(r"Table with name (\S+) does not exist", what)
    if missing:
        hints = [spelled_like(missing[1], table_list.known(), "tables", (*table_list.MAIN, "all other views"))]
    return UsageError(what.rstrip("!"), " ".join(hints))
