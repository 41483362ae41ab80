"""A tree as a picture of nested boxes or rings: which rows are drawn, and how large."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfkit_core.language.columns import worded
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import values
from perfkit_core.renderers.headings import heading
from perfkit_core.renderers.scales import common_unit
from perfkit_core.renderers.shortening import cut
from perfkit_core.renderers.values import plain
from perfkit_core.report.model import Chart, Section
from perfkit_core.report.tree_rows import parents

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
