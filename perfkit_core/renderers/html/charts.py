"""What a page needs to draw a section's chart: numbers in one unit.

What a page needs to draw how differences lead from one total to another.

What a page needs to draw the single values of several groups on one axis: a lane a group, a point a value.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from perfkit_core.language.messages import worded
from perfkit_core.language.units import Unit, format_in, with_unit
from perfkit_core.model.columns import Column
from perfkit_core.renderers.cells import cut, plain, visible
from perfkit_core.renderers.html.boxes import heatmap, hierarchy
from perfkit_core.renderers.table_columns import common_unit, heading, values
from perfkit_core.report.model import Chart, Section

NAMED: Final = 5
"""Of a lane with more marked values than these, no value is named."""
_LANE: Final = 76
"""Pixels."""
_AROUND: Final = 80
_SHORT_DISTRIBUTIONS: Final = 24
"""Characters of a name beside a lane."""


def distribution(section: Section, chart: Chart) -> dict[str, Any]:
    """``{"kind", "height" (pixels), "unit", "title" (of the axis), "band" ([low, high] or None), "lanes": [{"name",
    "short", "values", "labels", "marked", "named", "median", "median_text"}]}``.

    Of the columns ``chart.y`` the first holds the values, the second the median of the group; ``step`` names a value,
    and those where ``outlying`` is true are marked.
    """
    table, (value, _) = section.table, chart.y
    unit = common_unit(section.column(value), [values(table[name]) for name in chart.y])
    of_lanes = section.column(chart.x)
    groups = list(table.groupby(chart.x, sort=False))
    size = unit.size if unit else 1.0
    return {
        "kind": chart.kind,
        "height": _AROUND + _LANE * len(groups),
        "unit": unit.name if unit else "",
        "title": heading(section.column(value)),
        "band": [edge / size for edge in chart.band] if chart.band else None,
        "lanes": [_lane(visible(worded(str(plain(name)), of_lanes)), group, chart, unit) for name, group in groups],
    }


def _lane(name: str, group: pd.DataFrame, chart: Chart, unit: Unit | None) -> dict[str, Any]:
    value, middle = chart.y
    size = unit.size if unit else 1.0
    median = values(group[middle])[0]
    marked = [bool(one) for one in group["outlying"]]
    return {
        "name": name,
        "short": cut(name, _SHORT_DISTRIBUTIONS),
        "values": [one / size for one in values(group[value])],
        "labels": [visible(str(plain(step))) for step in group["step"]],
        "marked": marked,
        "named": sum(marked) <= NAMED,
        "median": median / size,
        "median_text": with_unit(format_in(median, unit), unit),
    }


_BAR: Final = 22
"""Pixels."""
_AROUND_WATERFALLS: Final = 60
_SHORT_WATERFALLS: Final = 46
"""Characters of a name beside a bar."""


def waterfall(section: Section, chart: Chart) -> dict[str, Any]:
    """``{"kind", "height" (pixels), "names", "short", "unit", "title" (of the axis), "differences" (None: a total),
    "reached", "texts" (of the bars)}``."""
    table, (difference, reached) = section.table, chart.y
    unit = common_unit(section.column(difference), [values(table[name]) for name in chart.y])
    size = unit.size if unit else 1.0
    names = [visible(worded(str(plain(name)), section.column(chart.x))) for name in table[chart.x].to_list()]
    return {
        "kind": chart.kind,
        "height": _AROUND_WATERFALLS + _BAR * len(table),
        "names": names,
        "short": [cut(name, _SHORT_WATERFALLS) for name in names],
        "unit": unit.name if unit else "",
        "title": heading(section.column(reached)),
        "differences": [None if value is None else value / size for value in values(table[difference])],
        "reached": [value / size for value in values(table[reached])],
        "texts": [_text(*row, unit) for row in zip(values(table[difference]), values(table[reached]), strict=True)],
    }


def _text(difference: int | None, reached: int, unit: Unit | None) -> str:
    """A total as it is, a difference with its sign."""
    if difference is None:
        return format_in(reached, unit)
    return f"{'+' if difference > 0 else ''}{format_in(difference, unit)}"


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
    scaled = _scaled(found, unit.size if unit else 1.0)
    return {"title": title, "values": scaled, "unit": unit.name if unit else "", "continuous": True}


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
