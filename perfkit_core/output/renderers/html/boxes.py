"""Chart data for the scripts of the page: trees (drawn as nested boxes or rings) and heat maps."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.base.algorithms import trees
from perfkit_core.base.language.messages import say, worded
from perfkit_core.base.language.units import Unit
from perfkit_core.output.renderers.cells import cut, plain, visible
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
