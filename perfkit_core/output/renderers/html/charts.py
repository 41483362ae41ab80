"""Chart data for the scripts of the page, also of trees (drawn as nested boxes or rings) and of heat maps."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import trees
from perfkit_core.base.language.messages import say, worded
from perfkit_core.base.language.shortening import cut
from perfkit_core.base.language.units import Unit, format_duration, format_in, with_unit
from perfkit_core.output.renderers.cells import plain, visible
from perfkit_core.output.renderers.html import colours
from perfkit_core.output.renderers.table_columns import common_unit, heading, values
from perfkit_core.trace.model.report_data import Chart, Section

MOST_NODES: Final = 1500
"""Maximum number of boxes in a chart. Browsers draw and zoom this number without delay."""

SHORT: Final = 46
"""Maximum length of the name of a bar, in characters."""
_LEVEL_PIXELS: Final = 24

Numbers = npt.NDArray[np.float64]


def hierarchy(section: Section, chart: Chart) -> dict[str, Any] | None:
    """Return the data of a tree, or None if all sizes are 0. If there are too many rows, only the largest are drawn."""
    table = section.table
    above = trees.parents(table["depth"].to_numpy(np.int64))
    weights: dict[str, Numbers] = {
        name: np.maximum(table[name].fillna(0).to_numpy(np.float64), 0) for name in chart.y if name in table.columns
    }
    sizes = {name: _enclosing(above, weight) for name, weight in weights.items() if weight.any()}
    if not sizes:
        return None
    shares = np.max([of_weight / of_weight.max() for of_weight in sizes.values()], axis=0)
    mask = shares > 0  # rows of size 0 have no box
    if len(shares) > MOST_NODES:
        mask &= shares >= np.partition(shares, -MOST_NODES)[-MOST_NODES]
    levels = int(table["depth"][mask].max()) + 1
    number = np.append(np.cumsum(mask) - 1, -1)
    unit = common_unit(section.column(next(iter(sizes))), [values(table[name]) for name in sizes])
    size = unit.size if unit else 1.0
    labels = [visible(worded(str(plain(name)), section.column(chart.x))) for name in table[chart.x][mask].to_list()]
    return {
        "kind": chart.kind,
        "height": min(max(_LEVEL_PIXELS * levels, 160), 900) if chart.kind == "icicle" else 420,  # pixels
        "labels": labels,
        "short": [] if chart.kind == "icicle" else [cut(name, SHORT) for name in labels],  # names of bars
        "parents": np.where(above[mask] < 0, -1, number[above[mask]]).tolist(),  # indices of parents, -1 for roots
        "left_out": int((~mask).sum()),  # number of rows that are not drawn
        "unit": unit.name if unit else "",
        "weights": [
            {
                "name": heading(section.column(name)),
                "colour": colours.of_column(section.column(name)),
                "sizes": (drawn[mask] / size).tolist(),  # a drawn size is at least the sum of the sizes of its children
                "values": (weights[name][mask] / size).tolist(),  # as in the table
            }
            for name, drawn in sizes.items()
        ],
    }


def _enclosing(above: npt.NDArray[np.int64], sizes: Numbers) -> Numbers:
    """Return the sizes of the boxes of a tree. If the children of a box are larger in total than the box, the box gets
    this total size. This happens if the children run in several threads."""
    drawn, inside = sizes.copy(), np.zeros(len(sizes))
    for row in range(len(sizes) - 1, -1, -1):  # from the last row, because children follow their parent
        drawn[row] = max(drawn[row], inside[row])
        if above[row] >= 0:
            inside[above[row]] += drawn[row]
    return drawn


_ROW_PIXELS: Final = 26
AROUND: Final = 80
_TALLEST: Final = 900


def heatmap(section: Section, chart: Chart) -> dict[str, Any] | None:
    """Return the data of a heat map, or None if there is no data.

    The user chooses which number the cells show. ``weights`` has the name, unit and values of each such number. The
    values are a list of rows; unknown values are None. If several table rows belong to one cell, the first is drawn."""
    table = section.table
    names = [name for name in chart.y if name in table.columns and table[name].notna().any()]
    if not names or chart.by not in table.columns:
        return None
    rows = list(dict.fromkeys(values(table[chart.by])))
    weights = []
    if chart.x:  # The heat map has one column per value of chart.x. The user chooses the number to show.
        across = list(dict.fromkeys(values(table[chart.x])))
        columns, column_title = escaped(across), heading(section.column(chart.x))
        places = list(zip(values(table[chart.by]), values(table[chart.x]), strict=True))
        for name in names:
            unit = common_unit(section.column(name), [values(table[name])])
            cells = dict(zip(reversed(places), reversed(scaled(table[name], unit)), strict=True))
            matrix = [[cells.get((row, column)) for column in across] for row in rows]
            weights.append({"name": heading(section.column(name)), "unit": unit.name if unit else "", "values": matrix})
    else:  # The heat map has one column for each of the table's columns in chart.y. All have the same unit.
        columns, column_title = [heading(section.column(name)) for name in names], ""
        first = table.drop_duplicates(chart.by)
        unit = common_unit(section.column(names[0]), [values(first[name]) for name in names])
        matrix = [list(row) for row in zip(*(scaled(first[name], unit) for name in names), strict=True)]
        weights.append({"name": say("Time"), "unit": unit.name if unit else "", "values": matrix})
    return {
        "kind": chart.kind,
        "height": min(AROUND + _ROW_PIXELS * max(len(rows), 3), _TALLEST),  # pixels
        "rows": escaped(rows),
        "row_title": heading(section.column(chart.by)),
        "marked": [position for position, row in enumerate(rows) if row in chart.marked],  # highlighted rows
        "columns": columns,
        "column_title": column_title,
        "weights": weights,
    }


def escaped(names: Sequence[Any]) -> list[str]:
    """Return names as labels for plotly, with HTML escaped."""
    return [html.escape(visible(str(plain(name))), quote=False) for name in names]


def scaled(column: pd.Series, unit: Unit | None) -> list[float | None]:
    """Convert the numbers of a column to a unit. NaN and infinity become None, because JSON cannot represent them."""
    size = unit.size if unit else 1.0
    return [None if plain(value) is None else float(value) / size for value in column.to_list()]


NAMED: Final = 5
"""A distribution chart labels the outliers of a group only if there are at most this many."""
_LANE_PIXELS: Final = 76
_LANE_NAME_CHARACTERS: Final = 24
_RUNS: Final = {"other": "later"}  # the run that is compared with the run "base"


def distribution(section: Section, chart: Chart) -> dict[str, Any]:
    """Return the data of a distribution: a dot per table row. Rows with the same ``chart.x`` share one lane."""
    table, (value, median_column) = section.table, chart.y
    unit = common_unit(section.column(value), [values(table[name]) for name in chart.y])
    of_lanes = section.column(chart.x)
    size = unit.size if unit else 1.0
    lanes = []
    groups = list(table.groupby(chart.x, sort=False))
    for (key, group), colour in zip(
        groups, colours.of_names(_RUNS.get(str(key), str(key)) for key, _ in groups), strict=True
    ):
        name = visible(worded(str(plain(key)), of_lanes))
        median = values(group[median_column])[0]
        marked = [bool(outlying) for outlying in group["outlying"]]
        lanes.append({
            "name": name,
            "short": cut(name, _LANE_NAME_CHARACTERS),
            "colour": colour,
            "values": scaled(group[value], unit),
            "labels": [visible(str(plain(step))) for step in group["step"]],
            "marked": marked,
            "named": sum(marked) <= NAMED,  # whether outliers are labelled
            "median": median / size,
            "median_text": with_unit(format_in(median, unit), unit),
        })  # fmt: skip
    return {
        "kind": chart.kind,
        "height": AROUND + _LANE_PIXELS * len(lanes),  # pixels
        "unit": unit.name if unit else "",
        "title": heading(section.column(value)),  # of the axis
        "band": [edge / size for edge in chart.band] if chart.band else None,  # range of values to shade
        "lanes": lanes,
    }


_BAR_PIXELS: Final = 22
_AROUND_WATERFALLS: Final = 60


def waterfall(section: Section, chart: Chart) -> dict[str, Any]:
    """Return the data of a waterfall: bars that lead from one total to another."""
    table, (difference, reached) = section.table, chart.y
    unit = common_unit(section.column(difference), [values(table[name]) for name in chart.y])
    names = [visible(worded(str(plain(name)), section.column(chart.x))) for name in table[chart.x].to_list()]
    texts = []
    for change, total in zip(values(table[difference]), values(table[reached]), strict=True):
        if change is None:  # This bar is a total, which has no sign.
            texts.append(format_in(total, unit))
        else:
            texts.append(f"{'+' if change > 0 else ''}{format_in(change, unit)}")
    return {
        "kind": chart.kind,
        "height": _AROUND_WATERFALLS + _BAR_PIXELS * len(table),  # pixels
        "names": names,
        "short": [cut(name, SHORT) for name in names],
        "unit": unit.name if unit else "",
        "title": heading(section.column(reached)),  # of the axis
        "differences": scaled(table[difference], unit),  # None for a total
        "reached": scaled(table[reached], unit),  # totals so far
        "texts": texts,  # next to the bars
    }


_DOTS: Final = 300
"""Maximum number of dots of a roofline. The rows with the longest times are drawn."""
_ROOFLINE_PIXELS: Final = 420
_ROOF_NAMES: Final = 2
"""Number of operators that the label of a roof names, those with the longest times."""


def roofline(section: Section, chart: Chart) -> dict[str, Any] | None:
    """Return the data of a roofline: dots on logarithmic axes, and the roofs above them. None without dots."""
    rate, time, peak, memory = chart.y
    table = section.table
    table = table[(table[chart.x].fillna(0) > 0) & (table[rate].fillna(0) > 0)].nlargest(_DOTS, time)
    if table.empty:
        return None
    kinds = [str(plain(kind)) for kind in table[chart.by].to_list()]
    colour = dict(zip(dict.fromkeys(kinds), colours.of_names(dict.fromkeys(kinds)), strict=True))
    names = [visible(worded(str(plain(name)), section.column("name"))) for name in table["name"].to_list()]
    names = [cut(name, _TOOLTIP_CHARACTERS) for name in names]
    with_roof = table.assign(kind=kinds, shown=names).dropna(subset=[peak, memory])
    roofs = []  # peaks in TFLOP/s and TB/s. Units for matrices and for vectors have different peaks of one type.
    for _, rows in with_roof.groupby([peak, memory], sort=True):
        label = f"{', '.join(sorted(set(rows['kind'])))} ({', '.join(rows['shown'].unique()[:_ROOF_NAMES])})"
        roofs.append({"name": label, "peak": float(rows[peak].iloc[0]), "slope": float(rows[memory].iloc[0]) / 1000})
    shapes = table["shapes"].to_list() if "shapes" in table else [""] * len(table)
    return {
        "kind": chart.kind,
        "height": _ROOFLINE_PIXELS,
        "x_title": heading(section.column(chart.x)),
        "y_title": heading(section.column(rate)),
        "unit": "TFLOP/s",
        "x": values(table[chart.x]),
        "y": values(table[rate]),
        "sizes": (table[time] / max(int(table[time].max()), 1)).astype(float).to_list(),  # of the dots, at most 1
        "times": [format_duration(dur_ns) for dur_ns in table[time]],
        "names": names,
        "shapes": [cut(visible(str(plain(text))), _TOOLTIP_CHARACTERS) for text in shapes],
        "kinds": kinds,
        "colours": [colour[kind] for kind in kinds],
        "roofs": roofs,
    }  # fmt: skip


RANKED: Final = 15
"""Maximum number of bars of a ranking."""
SCRIPTED: Final = {"waterfall": waterfall, "distribution": distribution, "roofline": roofline}
"""Kind of chart → function that returns the data. Each of these kinds has a script with the same name."""
SCRIPTS: Final = {
    "charts_series.js": ("bar", "line"),
    "charts_rows.js": ("ranking", "share"),
    "charts_trees.js": ("icicle", "sunburst", "opening"),
    "charts_heatmap.js": ("heatmap",),
    **{f"{kind}.js": (kind,) for kind in SCRIPTED},
}
"""Script → the kinds of charts that it draws."""
HEIGHTS: Final = {"ranking": 380, "share": 110}
"""Kind of chart → height in pixels. Bar and line charts have a height of 300 pixels."""
_TOOLTIP_CHARACTERS: Final = 100
_TOOLTIP_LINES: Final = 12


def figure(section: Section) -> dict[str, Any] | None:
    """Return the data of the chart of a section, or None if there is no data.

    Trees, heat maps, waterfalls and distributions have functions of their own. All other charts show series of numbers.
    All series have the unit of the largest series, so that stacked values add up."""
    chart, table = section.chart, section.table
    if chart is None or chart.kind == "intervals" or table.empty:
        return None
    if chart.kind == "heatmap":
        return heatmap(section, chart)
    if chart.x not in table.columns:
        return None
    if chart.kind in SCRIPTS["charts_trees.js"]:
        return hierarchy(section, chart)
    if chart.kind in SCRIPTED:
        return SCRIPTED[chart.kind](section, chart)
    names = [name for name in chart.y if name in table.columns and table[name].notna().any()]
    if not names:
        return None
    if chart.kind == "ranking":
        section = replace(section, table=table.nlargest(RANKED, names[0], keep="first"))
    table, columns = section.table, [section.column(name) for name in names]
    unit = common_unit(columns[0], [values(table[column.name]) for column in columns])
    of_series = colours.of_names(column.name for column in columns)
    if chart.kind == "ranking":
        of_series = [colours.of_column(column) for column in columns]
    axis: dict[str, Any]
    positions, across = table[chart.x], section.column(chart.x)
    if across.unit == "ns":  # The x axis is time.
        time = common_unit(across, [values(positions)])
        title = f"{heading(across)} ({time.name})" if time else heading(across)
        axis = {"title": title, "values": scaled(positions, time)}
        axis |= {"unit": time.name if time else "", "continuous": True}
    else:
        labels = escaped([worded(str(plain(value)), across) for value in positions.to_list()])
        names = [visible(str(plain(value))) for value in positions.to_list()] if across.thing else []
        axis = {"title": heading(across), "values": labels, "continuous": False, "thing": across.thing, "names": names}
    return {
        "kind": chart.kind,
        "height": HEIGHTS.get(chart.kind, 300),  # pixels
        "x": axis,
        **(_names(section, chart) if chart.kind == "ranking" else {}),
        "unit": unit.name if unit else "",
        "series": [
            {"name": escaped([heading(column)])[0], "values": scaled(table[column.name], unit), "colour": colour}
            for column, colour in zip(columns, of_series, strict=True)
        ],
        "colours": colours.of_names(map(str, table[chart.x])) if chart.kind == "share" else [],  # of the parts
        "stacked": chart.kind == "bar" and len(columns) > 1,
    }


def scripts(kinds: Collection[str]) -> Iterator[str]:
    """Yield the scripts for these kinds of charts. A script may use the scripts before it."""
    if not kinds:
        return
    yield "charts_style.js"
    yield from (name for name, drawn in SCRIPTS.items() if not set(drawn).isdisjoint(kinds))
    yield from ("charts_controls.js", "charts.js")


def _names(section: Section, chart: Chart) -> dict[str, list[str]]:
    """Return the rows' short and full names. Equal names get the text of another column: ``gemm · stream 7``."""
    table, column = section.table, section.column(chart.x)
    names = [visible(worded(str(plain(value)), column)) for value in table[chart.x].to_list()]
    short = [cut(name, SHORT) for name in names]
    if len(set(names)) < len(names):
        texts = [str(name) for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
        other = next((name for name in texts if name != chart.x and table[name].nunique() > 1), None)
        if other is not None:
            more = [visible(str(plain(value))) for value in table[other].to_list()]
            names = [f"{name} · {addition}" for name, addition in zip(names, more, strict=True)]
            short = [f"{name} · {cut(addition, SHORT // 3)}" for name, addition in zip(short, more, strict=True)]
    full = []
    for name in names:
        lines = [name[at : at + _TOOLTIP_CHARACTERS] for at in range(0, len(name), _TOOLTIP_CHARACTERS)]
        full.append("<br>".join(escaped([*lines[:_TOOLTIP_LINES], *(["…"] if lines[_TOOLTIP_LINES:] else [])])))
    return {"short": escaped(short), "full": full}
