"""A SQL statement over the tables of a profile, which duckdb runs in memory, and the list of these tables.

A statement reads only these tables: it can access no file, no network and no Python variable, and changes nothing."""

from __future__ import annotations

import itertools
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.advice import advice
from perfkit_core.advice.engine import advise
from perfkit_core.base.language.messages import say
from perfkit_core.base.system.paths import PathLike
from perfkit_core.errors import UsageError
from perfkit_core.integrations.sql.engine import Engine
from perfkit_core.output.renderers import cells
from perfkit_core.output.report import source_facts
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import as_profile
from perfkit_core.readers.load import load_all
from perfkit_core.readers.read_options import DEFAULT, ReadOptions
from perfkit_core.trace.model import columns, schema, side_tables
from perfkit_core.trace.model.columns import Column
from perfkit_core.trace.model.report_data import Report, Section, Source
from perfkit_core.trace.model.trace import Trace

_TYPES: Final = {
    pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(), pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(), pa.float32(): pd.Float32Dtype(), pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}  # fmt: skip
_WRITE_ONE: Final = 'write a statement as text, such as "select * from steps"'


class OpenEngine(Protocol):
    """What an engine does (:class:`perfkit_core.integrations.sql.engine.Engine`)."""

    def named(self, statement: str) -> list[str]: ...

    def rows(self, statement: str, tables: Mapping[str, pa.Table], limit: int | None) -> pa.Table: ...


Engines = Callable[[Sequence[str]], AbstractContextManager[OpenEngine]]


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
    UsageError if the statement has an error, or if duckdb is not installed."""
    return run(profile, statement, limit).to_pandas()


sql = query
"""The name of :func:`query` in the package ``perfkit``."""


def report(
    profile: Profile,
    statement: str,
    limit: int | None = None,
    shown: int | None = None,
    options: ReadOptions = DEFAULT,
    engine: Engines = Engine,
) -> Report:
    """Return a report with the result of a statement. ``limit``: maximum number of rows. ``shown``: maximum number of
    rows in text, Markdown and HTML. Raises as :func:`query`."""
    result = run(profile, statement, limit, options, engine)
    empty = say("The statement returned no rows.")
    frame = result.to_pandas()
    table = Section("result", say("Result"), frame, empty=empty, limit=shown, columns=result.columns, chosen=True)
    return Report(result.source.path, (result.source,), (table,))


def run(
    profile: Profile, statement: str, limit: int | None = None, options: ReadOptions = DEFAULT, engine: Engines = Engine
) -> Result:
    """Return the result of a statement. ``options`` apply if sources are read. ``engine(tables)`` opens an engine for
    tables with these names. Raises as :func:`query`."""
    wrong = not isinstance(profile, (Trace, str, os.PathLike, Sequence))
    if wrong or (isinstance(profile, Sequence) and not profile):
        hint = "give a Trace, or the path of a run folder or a trace file"
        raise UsageError(f"{reprlib.repr(profile)} is no profile", hint)
    if not isinstance(statement, str):
        raise UsageError(f"{reprlib.repr(statement)} is no SQL statement", _WRITE_ONE)
    if limit is not None and (type(limit) is not int or limit < 0):
        raise UsageError(f"limit={reprlib.repr(limit)} is no number of rows", "give 0 or more, or None for all rows")
    with engine(table_names()) as opened:
        named = opened.named(statement)
        tables, source = computed(profile, named, options)
        table = opened.rows(statement, tables, limit)
    by_name = columns.by_name(column for name in reversed(named) for column in declarations(name))
    declared = [by_name.get(name) or _undeclared(name) for name in table.column_names]
    names = _distinct(table.column_names)
    renamed = tuple(replace(column, name=name) for column, name in zip(declared, names, strict=True))
    return Result(table.rename_columns(names), renamed, source)


def _distinct(names: Iterable[str]) -> list[str]:
    """Return the names of columns, with numbers added to repeated names: a, a_1."""
    distinct: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        distinct[name if name not in distinct else next(free for free in numbered if free not in distinct)] = None
    return list(distinct)


def _undeclared(name: str) -> Column:
    """Return the declaration of a column that no table has. Expressions keep their text as heading, without a unit."""
    return columns.column((), name) if name.isidentifier() else Column(name, name, kind=columns.KEY, heading="proper")


Profile = Trace | PathLike | Sequence[PathLike]

EVENTS: Final = "events"
ADVICE: Final = "advice"
MAIN: Final = (EVENTS, "steps", "operators", "kernels", "memory", ADVICE)
"""The tables whose columns are documented. Every other view is a table, too."""
RECORDED: Final = {f"recorded_{name}": name for name in side_tables.ALL}
"""Names of the side tables of a trace in SQL: a view may have the same name as one of these."""
RANK: Final = "rank"
"""Grouping of all views that have it, so that their tables have a column of this name."""
_ROW: Final = columns.key("row", "Row", "row number, to which parent and launched_by refer")

_OF_EVENTS: Final = (
    columns.NAME, columns.KIND, columns.CATEGORY, columns.START, columns.TID, columns.DEVICE_NAME, columns.STREAM,
    columns.STEP, columns.PHASE, columns.MODULE, columns.SHAPES, columns.OP_NAME,
)  # fmt: skip


def table_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*MAIN, *get_plugins().views(), *RECORDED)))


def declarations(table: str) -> tuple[Column, ...]:
    """Return the declarations of the columns of a table, in the order of its columns."""
    if table == EVENTS or table in RECORDED:
        recorded = schema.COLUMNS if table == EVENTS else side_tables.ALL[RECORDED[table]].columns
        declared = tuple(
            replace(columns.column(_OF_EVENTS, column.name), description=column.meaning) for column in recorded
        )
        return (_ROW, *declared) if table == EVENTS else declared
    if table == ADVICE:
        return tuple(columns.column(advice.COLUMNS, str(name)) for name in advice.table(()).columns)
    return tuple(column for column in get_plugins().views()[table].columns if not column.by or RANK in column.by)


def schema_report() -> Report:
    """Return a report with the columns of the documented tables: their units and their meanings."""
    rows = [
        (table, column.name, column.unit, say(column.description or column.title))
        for table in MAIN
        for column in declarations(table)
    ]
    section = Section("tables", say("Tables"), pd.DataFrame(rows, columns=["table", "column", "unit", "meaning"]))
    return Report(say("Tables for SQL"), (), (section,))


def computed(profile: Profile, names: Collection[str], options: ReadOptions) -> tuple[dict[str, pa.Table], Source]:
    """Return the tables with these names, and facts about the profile. If only views are named, many ranks are read
    one by one."""
    if not isinstance(profile, Trace) and not {EVENTS, ADVICE, *RECORDED}.isdisjoint(names):
        profile = load_all([profile] if isinstance(profile, (str, os.PathLike)) else profile, options)
    views = [view for name, view in get_plugins().views().items() if name in names]
    if isinstance(profile, Trace) and not views:  # ranks are not split, which would copy the events
        source, tables = source_facts.source(profile), {}
    else:
        result = as_profile(profile, options=options).compute(views, ViewRequest(by=(RANK,)))
        source = source_facts.described(result.meta, result.quality, result.steps, result.timed)
        tables = {name: _arrow(table) for name, table in result.tables.items()}
    if isinstance(profile, Trace) and EVENTS in names:
        tables[EVENTS] = profile.events.add_column(0, _ROW.name, pa.array(np.arange(len(profile))))
    if isinstance(profile, Trace):
        tables |= {name: profile.tables[RECORDED[name]] for name in RECORDED if name in names}
    if isinstance(profile, Trace) and ADVICE in names:
        tables[ADVICE] = _arrow(advise(profile).to_pandas())
    return tables, source


def _arrow(table: pd.DataFrame) -> pa.Table:
    """Return a table in Arrow. Sentences become English text."""
    arrays = {}
    for name, values in table.items():
        if values.dtype == object:
            array = pa.array(list(map(cells.plain, values)))
            arrays[str(name)] = array.cast(pa.string()) if pa.types.is_null(array.type) else array
        else:
            arrays[str(name)] = pa.array(values, from_pandas=True)
    return pa.table(arrays)
