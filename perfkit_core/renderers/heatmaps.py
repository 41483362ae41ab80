"""What a page needs to draw rows by columns, each cell in the colour of its number."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from perfkit_core.language import say
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import values
from perfkit_core.renderers.families import Unit
from perfkit_core.renderers.headings import heading
from perfkit_core.renderers.scales import common_unit
from perfkit_core.renderers.values import plain
from perfkit_core.report.model import Chart, Section

_ROW: Final = 26
"""Pixels of a row where there are few."""
_AROUND: Final = 80
_TALLEST: Final = 900


def heatmap(section: Section, chart: Chart) -> dict[str, Any] | None:
    """``{"kind", "height" (pixels), "rows", "columns" (labels), "row_title", "column_title", "marked" (positions of
    rows), "weights": [{"name", "unit", "values" (rows × columns, None where unknown)}]}``; None without data.

    Of rows of the table that are for one cell the first is drawn.
    """
    table = section.table
    names = [name for name in chart.y if name in table.columns and table[name].notna().any()]
    if not names or chart.by not in table.columns:
        return None
    rows = list(dict.fromkeys(values(table[chart.by])))
    found = _by_columns(section, chart, names, rows) if chart.x else _by_names(section, chart, names)
    return {
        "kind": chart.kind,
        "height": min(_AROUND + _ROW * max(len(rows), 3), _TALLEST),
        "rows": _labels(rows),
        "row_title": heading(section.column(chart.by)),
        "marked": [position for position, row in enumerate(rows) if row in chart.marked],
        **found,
    }


def _by_columns(section: Section, chart: Chart, names: Sequence[str], rows: Sequence[Any]) -> dict[str, Any]:
    """A column for each value of ``x``, each name a number to choose."""
    table = section.table
    columns = list(dict.fromkeys(values(table[chart.x])))
    places = list(zip(values(table[chart.by]), values(table[chart.x]), strict=True))
    weights = []
    for name in names:
        unit = common_unit(section.column(name), [values(table[name])])
        cells = dict(zip(reversed(places), reversed(_scaled(table[name], unit)), strict=True))
        whole = [[cells.get((row, column)) for column in columns] for row in rows]
        weights.append({"name": heading(section.column(name)), "unit": unit.name if unit else "", "values": whole})
    return {"columns": _labels(columns), "column_title": heading(section.column(chart.x)), "weights": weights}


def _by_names(section: Section, chart: Chart, names: Sequence[str]) -> dict[str, Any]:
    """A column for each name, all in one unit."""
    first = section.table.drop_duplicates(chart.by)
    unit = common_unit(section.column(names[0]), [values(first[name]) for name in names])
    cells = zip(*(_scaled(first[name], unit) for name in names), strict=True)
    weight = {"name": say("Time"), "unit": unit.name if unit else "", "values": [list(row) for row in cells]}
    return {"columns": [heading(section.column(name)) for name in names], "column_title": "", "weights": [weight]}


def _labels(found: Sequence[Any]) -> list[str]:
    return [html.escape(visible(str(plain(one))), quote=False) for one in found]


def _scaled(column: pd.Series, unit: Unit | None) -> list[float | None]:
    size = unit.size if unit else 1.0
    return [None if value is None else float(value) / size for value in values(column)]
