"""A tree as a picture of nested boxes or rings: which rows are drawn, and how large.

What a page needs to draw rows by columns, each cell in the colour of its number.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.language.messages import say, worded
from perfkit_core.language.units import Unit
from perfkit_core.renderers.cells import cut, plain, visible
from perfkit_core.renderers.table_columns import common_unit, heading, values
from perfkit_core.report.display import parents
from perfkit_core.report.model import Chart, Section

MOST_NODES: Final = 1500
"""Boxes that a browser draws and zooms without waiting."""

_SHORT: Final = 46
"""Characters of a name beside a bar."""
_LEVEL: Final = 24
"""Pixels of a level, with room for its text."""

Numbers = npt.NDArray[np.float64]


def hierarchy(section: Section, chart: Chart) -> dict[str, Any] | None:
    """``{"kind", "height" (pixels), "labels", "short" (beside bars; none of nested boxes), "parents" (positions, -1:
    outermost), "left_out", "unit", "weights": [{"name", "sizes", "values"}]}``: ``values`` are those of the table,
    ``sizes`` what is drawn: no box is less than those inside it.

    Of many rows the largest are drawn; what is above a row is no smaller. None where nothing has a size.
    """
    table = section.table
    above = parents(table["depth"].to_numpy(np.int64))
    weights = {name: _filled(table[name]) for name in chart.y if name in table.columns}
    sizes = {name: _enclosing(above, found) for name, found in weights.items() if found.any()}
    if not sizes:
        return None
    kept = _largest(sizes)
    number = np.append(np.cumsum(kept) - 1, -1)
    unit = common_unit(section.column(next(iter(sizes))), [values(table[name]) for name in sizes])
    size = unit.size if unit else 1.0
    labels = [visible(worded(str(plain(name)))) for name in table[chart.x][kept].to_list()]
    return {
        "kind": chart.kind,
        "height": _height(chart.kind, int(table["depth"][kept].max()) + 1),
        "labels": labels,
        "short": [] if chart.kind == "icicle" else [cut(name, _SHORT) for name in labels],
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


def _height(kind: str, levels: int) -> int:
    return min(max(_LEVEL * levels, 160), 900) if kind == "icicle" else 420


def _filled(column: pd.Series) -> Numbers:
    return np.asarray(np.maximum(column.fillna(0).to_numpy(np.float64), 0))


def _enclosing(above: npt.NDArray[np.int64], sizes: Numbers) -> Numbers:
    """Each at least the sum of those right below it: threads may do more in a time than it is long."""
    found, inside = sizes.copy(), np.zeros(len(sizes))
    for row in range(len(sizes) - 1, -1, -1):  # below comes after: preorder
        found[row] = max(found[row], inside[row])
        if above[row] >= 0:
            inside[above[row]] += found[row]
    return found


def _largest(sizes: dict[str, Numbers]) -> npt.NDArray[np.bool_]:
    """The rows that are largest in some weight, a share of its whole; those of nothing are no boxes."""
    shares = np.max([found / found.max() for found in sizes.values()], axis=0)
    if len(shares) <= MOST_NODES:
        return np.asarray(shares > 0)
    smallest = np.partition(shares, -MOST_NODES)[-MOST_NODES]
    return np.asarray((shares >= smallest) & (shares > 0))


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
