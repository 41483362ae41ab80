"""The tables that a statement can name: the events, the views, and the advice. A table is computed if it is named."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from perfkit_core.advice import advice
from perfkit_core.advice.engine import advise
from perfkit_core.base.language.messages import say
from perfkit_core.base.system.paths import PathLike
from perfkit_core.output.renderers import cells
from perfkit_core.output.report import source_facts
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import as_profile
from perfkit_core.readers.load import load_all
from perfkit_core.readers.read_options import ReadOptions
from perfkit_core.trace.model import columns, schema
from perfkit_core.trace.model.columns import Column
from perfkit_core.trace.model.report_data import Report, Section, Source
from perfkit_core.trace.model.trace import Trace

Profile = Trace | PathLike | Sequence[PathLike]

EVENTS: Final = "events"
ADVICE: Final = "advice"
MAIN: Final = (EVENTS, "steps", "operators", "kernels", "memory", ADVICE)
"""The tables whose columns are documented. Every other view is a table, too."""
RANK: Final = "rank"
"""Grouping of all views that have it, so that their tables have a column of this name."""
_ROW: Final = columns.key("row", "Row", "row number, to which parent and launched_by refer")

_OF_EVENTS: Final = (
    columns.NAME, columns.KIND, columns.CATEGORY, columns.START, columns.TID, columns.DEVICE_NAME, columns.STREAM,
    columns.STEP, columns.PHASE, columns.MODULE, columns.SHAPES, columns.OP_NAME,
)  # fmt: skip


def table_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*MAIN, *get_plugins().views())))


def declarations(table: str) -> tuple[Column, ...]:
    """Return the declarations of the columns of a table, in the order of its columns."""
    if table == EVENTS:
        declared = (columns.column(_OF_EVENTS, column.name) for column in schema.COLUMNS)
        meanings = {column.name: column.meaning for column in schema.COLUMNS}
        return (_ROW, *(replace(column, description=meanings[column.name]) for column in declared))
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
    if not isinstance(profile, Trace) and not {EVENTS, ADVICE}.isdisjoint(names):
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
