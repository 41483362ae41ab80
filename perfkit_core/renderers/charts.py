"""What a page needs to draw a section's chart: numbers in one unit."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import pandas as pd

from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import values
from perfkit_core.renderers.headings import label
from perfkit_core.renderers.scales import common_unit
from perfkit_core.renderers.values import plain
from perfkit_core.report.model import Section


def figure(section: Section) -> dict[str, Any] | None:
    """The section's chart: ``{"kind", "x", "y", "unit", "series": [{"name", "values"}], …}``; None without data.

    All series share the unit of the tallest, so that what is stacked adds up.
    """
    chart, table = section.chart, section.table
    if chart is None or table.empty:
        return None
    names = [name for name in chart.y if name in table.columns and table[name].notna().any()]
    if not names or chart.x not in table.columns:
        return None
    unit = common_unit({name: values(table[name]) for name in names})
    return {
        "kind": chart.kind,
        "x": {"title": label(chart.x), "values": _labels(table[chart.x])},
        "unit": unit.name if unit else "",
        "series": [{"name": label(name), "values": _scaled(table[name], unit.size if unit else 1.0)} for name in names],
        "stacked": chart.kind == "bar" and len(names) > 1,
        "totals": [bool(total) for total in table["total"]] if chart.kind == "waterfall" else [],
    }


def _labels(values: pd.Series) -> list[str]:
    """plotly reads labels as HTML of its own; escaped, a name is text there too."""
    return [html.escape(visible(str(plain(value))), quote=False) for value in values.to_list()]


def _scaled(values: pd.Series, size: float) -> Sequence[float | None]:
    return [None if plain(value) is None else float(value) / size for value in values.to_list()]
