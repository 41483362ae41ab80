"""What a page needs to draw a section's chart: numbers in one unit."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perfkit_core.language.columns import worded
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import values
from perfkit_core.renderers.distributions import distribution
from perfkit_core.renderers.headings import heading
from perfkit_core.renderers.heatmaps import heatmap
from perfkit_core.renderers.hierarchies import hierarchy
from perfkit_core.renderers.scales import common_unit
from perfkit_core.renderers.shortening import cut
from perfkit_core.renderers.values import plain
from perfkit_core.renderers.waterfalls import waterfall
from perfkit_core.report.model import Chart, Section
from perfkit_core.table_columns import Column

RANKED: Final = 15
"""Bars of a ranking."""
OF_RUNS: Final = {"waterfall": waterfall, "distribution": distribution}
"""Kinds with a file of their own, here and among the scripts."""
SCRIPTS: Final = {
    "charts_series.js": ("bar", "line"),
    "charts_rows.js": ("ranking", "share"),
    "charts_trees.js": ("icicle", "sunburst", "opening"),
    "charts_heatmap.js": ("heatmap",),
    **{f"{kind}.js": (kind,) for kind in OF_RUNS},
}
"""What draws which kinds."""
HEIGHTS: Final = {"ranking": 380, "share": 110}
"""Of the pictures that are not 300 pixels high."""
_SHORT: Final = 46
"""Characters of a name beside a bar."""
_WIDE: Final = 100
"""Characters of a line at the pointer."""
_LINES: Final = 12


def figure(section: Section) -> dict[str, Any] | None:
    """The section's chart: ``{"kind", "height" (pixels), "x", "short" and "full" (of x; a ranking's), "unit", "series":
    [{"name", "values"}]}``; other kinds have files of their own. None without data.

    All series share the unit of the tallest, so that what is stacked adds up.
    """
    chart, table = section.chart, section.table
    if chart is None or chart.kind == "intervals" or table.empty:
        return None
    if chart.kind == "heatmap":
        return heatmap(section, chart)
    if chart.x not in table.columns:
        return None
    if chart.kind in SCRIPTS["charts_trees.js"]:
        return hierarchy(section, chart)
    if chart.kind in OF_RUNS:
        return OF_RUNS[chart.kind](section, chart)
    names = [name for name in chart.y if name in table.columns and table[name].notna().any()]
    if not names:
        return None
    if chart.kind == "ranking":
        section = replace(section, table=table.nlargest(RANKED, names[0], keep="first"))
    return _series(section, chart, [section.column(name) for name in names])


def scripts(kinds: Collection[str]) -> Iterator[str]:
    """The scripts that draw these kinds of charts; each needs those before it."""
    if not kinds:
        return
    yield "charts_style.js"
    yield from (name for name, drawn in SCRIPTS.items() if not set(drawn).isdisjoint(kinds))
    yield from ("charts_controls.js", "charts.js")


def _series(section: Section, chart: Chart, columns: Sequence[Column]) -> dict[str, Any]:
    table = section.table
    unit = common_unit(columns[0], [values(table[column.name]) for column in columns])
    size = unit.size if unit else 1.0
    return {
        "kind": chart.kind,
        "height": HEIGHTS.get(chart.kind, 300),
        "x": _axis(table[chart.x], section.column(chart.x)),
        **(_names(section, chart) if chart.kind == "ranking" else {}),
        "unit": unit.name if unit else "",
        "series": [
            {"name": _label(visible(heading(column))), "values": _scaled(table[column.name], size)}
            for column in columns
        ],
        "stacked": chart.kind == "bar" and len(columns) > 1,
    }


def _axis(found: pd.Series, column: Column) -> dict[str, Any]:
    """Points in time in a unit that suits them, else names."""
    if column.unit != "ns":
        return {"title": heading(column), "values": _labels(found, column), "continuous": False}
    unit = common_unit(column, [values(found)])
    title = f"{heading(column)} ({unit.name})" if unit else heading(column)
    return {"title": title, "values": _scaled(found, unit.size if unit else 1.0), "continuous": True}


def _names(section: Section, chart: Chart) -> dict[str, list[str]]:
    """Of rows that are called alike also what else tells them apart, such as the device."""
    table, column = section.table, section.column(chart.x)
    names = [visible(worded(str(plain(value)), column)) for value in table[chart.x].to_list()]
    short = [cut(name, _SHORT) for name in names]
    for other in _telling(chart, table) if len(set(names)) < len(names) else ():
        more = [visible(str(plain(value))) for value in table[other].to_list()]
        names = [f"{name} · {one}" for name, one in zip(names, more, strict=True)]
        short = [f"{name} · {cut(one, _SHORT // 3)}" for name, one in zip(short, more, strict=True)]
    return {"short": [_label(name) for name in short], "full": [_wrapped(name) for name in names]}


def _telling(chart: Chart, table: pd.DataFrame) -> list[str]:
    """The first text column besides the name in which the rows differ."""
    texts = [str(name) for name in table.columns if name != chart.x and not pd.api.types.is_numeric_dtype(table[name])]
    return [name for name in texts if table[name].nunique() > 1][:1]


def _wrapped(name: str) -> str:
    """Whole, in lines; of very long ones the beginning."""
    lines = [name[at : at + _WIDE] for at in range(0, len(name), _WIDE)]
    return "<br>".join(_label(line) for line in (*lines[:_LINES], *(["…"] if lines[_LINES:] else [])))


def _labels(values: pd.Series, column: Column) -> list[str]:
    """plotly reads labels as HTML of its own; escaped, a name is text there too."""
    return [_label(visible(worded(str(plain(value)), column))) for value in values.to_list()]


def _label(text: str) -> str:
    return html.escape(text, quote=False)


def _scaled(values: pd.Series, size: float) -> Sequence[float | None]:
    return [None if plain(value) is None else float(value) / size for value in values.to_list()]
