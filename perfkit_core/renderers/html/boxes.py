"""Data of trees (nested boxes or rings) and heat maps for the page's scripts."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.algorithms import trees
from perfkit_core.language.messages import say, worded
from perfkit_core.language.units import Unit
from perfkit_core.renderers.cells import cut, plain, visible
from perfkit_core.renderers.table_columns import common_unit, heading, values
from perfkit_core.report import model

MOST_NODES: Final = 1500
"""Maximum number of boxes that browsers draw and zoom without delay."""

SHORT: Final = 46
"""Maximum length of a name beside a bar, in characters."""
_LEVEL: Final = 24
"""Height of a level with its text, in pixels."""

Numbers = npt.NDArray[np.float64]


def hierarchy(section: model.Section, chart: model.Chart) -> dict[str, Any] | None:
    """Return ``{"kind", "height" (pixels), "labels", "short" (beside bars; empty for icicles), "parents" (positions,
    -1: outermost), "left_out", "unit", "weights": [{"name", "sizes", "values"}]}``; None if nothing has a size.

    ``values`` are those of the table; ``sizes`` are drawn, at least the sum of the children. Of many rows the largest
    are drawn.
    """
    table = section.table
    above = trees.parents(table["depth"].to_numpy(np.int64))
    weights: dict[str, Numbers] = {
        name: np.maximum(table[name].fillna(0).to_numpy(np.float64), 0) for name in chart.y if name in table.columns
    }
    sizes = {name: _enclosing(above, found) for name, found in weights.items() if found.any()}
    if not sizes:
        return None
    shares = np.max([of_weight / of_weight.max() for of_weight in sizes.values()], axis=0)
    kept = shares > 0  # rows of size 0 have no box
    if len(shares) > MOST_NODES:
        kept &= shares >= np.partition(shares, -MOST_NODES)[-MOST_NODES]
    levels = int(table["depth"][kept].max()) + 1
    number = np.append(np.cumsum(kept) - 1, -1)
    unit = common_unit(section.column(next(iter(sizes))), [values(table[name]) for name in sizes])
    size = unit.size if unit else 1.0
    labels = [visible(worded(str(plain(name)))) for name in table[chart.x][kept].to_list()]
    return {
        "kind": chart.kind,
        "height": min(max(_LEVEL * levels, 160), 900) if chart.kind == "icicle" else 420,
        "labels": labels,
        "short": [] if chart.kind == "icicle" else [cut(name, SHORT) for name in labels],
        "parents": np.where(above[kept] < 0, -1, number[above[kept]]).tolist(),
        "left_out": int((~kept).sum()),
        "unit": unit.name if unit else "",
        "weights": [
            {
                "name": heading(section.column(name)),
                "sizes": (found[kept] / size).tolist(),
                "values": (weights[name][kept] / size).tolist(),
            }
            for name, found in sizes.items()
        ],
    }


def _enclosing(above: npt.NDArray[np.int64], sizes: Numbers) -> Numbers:
    """Return each size raised to the sum of its children, which is larger if several threads work."""
    found, inside = sizes.copy(), np.zeros(len(sizes))
    for row in range(len(sizes) - 1, -1, -1):  # children come after their parent
        found[row] = max(found[row], inside[row])
        if above[row] >= 0:
            inside[above[row]] += found[row]
    return found


_ROW: Final = 26
"""Height of a row in pixels."""
AROUND: Final = 80
_TALLEST: Final = 900


def heatmap(section: model.Section, chart: model.Chart) -> dict[str, Any] | None:
    """Return ``{"kind", "height" (pixels), "rows", "columns" (labels), "row_title", "column_title", "marked" (positions
    of rows), "weights": [{"name", "unit", "values" (rows × columns, None if unknown)}]}``; None without data. Of
    several table rows for a cell, the first is drawn."""
    table = section.table
    names = [name for name in chart.y if name in table.columns and table[name].notna().any()]
    if not names or chart.by not in table.columns:
        return None
    rows = list(dict.fromkeys(values(table[chart.by])))
    weights = []
    if chart.x:  # a column for each value of x; each name is a weight to choose
        across = list(dict.fromkeys(values(table[chart.x])))
        columns, column_title = escaped(across), heading(section.column(chart.x))
        places = list(zip(values(table[chart.by]), values(table[chart.x]), strict=True))
        for name in names:
            unit = common_unit(section.column(name), [values(table[name])])
            cells = dict(zip(reversed(places), reversed(scaled(table[name], unit)), strict=True))
            matrix = [[cells.get((row, column)) for column in across] for row in rows]
            weights.append({"name": heading(section.column(name)), "unit": unit.name if unit else "", "values": matrix})
    else:  # a column for each name, all in one unit
        columns, column_title = [heading(section.column(name)) for name in names], ""
        first = table.drop_duplicates(chart.by)
        unit = common_unit(section.column(names[0]), [values(first[name]) for name in names])
        matrix = [list(row) for row in zip(*(scaled(first[name], unit) for name in names), strict=True)]
        weights.append({"name": say("Time"), "unit": unit.name if unit else "", "values": matrix})
    return {
        "kind": chart.kind,
        "height": min(AROUND + _ROW * max(len(rows), 3), _TALLEST),
        "rows": escaped(rows),
        "row_title": heading(section.column(chart.by)),
        "marked": [position for position, row in enumerate(rows) if row in chart.marked],
        "columns": columns,
        "column_title": column_title,
        "weights": weights,
    }


def escaped(found: Sequence[Any]) -> list[str]:
    """Return names as labels, which plotly reads as HTML of its own."""
    return [html.escape(visible(str(plain(one))), quote=False) for one in found]


def scaled(column: pd.Series, unit: Unit | None) -> list[float | None]:
    """Return the numbers of a column in a unit, None where unknown or infinite, which JSON cannot hold."""
    size = unit.size if unit else 1.0
    return [None if plain(value) is None else float(value) / size for value in column.to_list()]
