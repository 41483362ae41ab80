"""What a page needs to draw the single values of several groups on one axis: a lane a group, a point a value."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from perfkit_core.language.columns import worded
from perfkit_core.renderers.cells import number, visible
from perfkit_core.renderers.columns import values
from perfkit_core.renderers.families import Unit
from perfkit_core.renderers.headings import heading
from perfkit_core.renderers.scales import common_unit
from perfkit_core.renderers.shortening import cut
from perfkit_core.renderers.values import plain
from perfkit_core.report.model import Chart, Section

NAMED: Final = 5
"""Of a lane with more marked values than these, no value is named."""
_LANE: Final = 76
"""Pixels."""
_AROUND: Final = 80
_SHORT: Final = 24
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
        "short": cut(name, _SHORT),
        "values": [one / size for one in values(group[value])],
        "labels": [visible(str(plain(step))) for step in group["step"]],
        "marked": marked,
        "named": sum(marked) <= NAMED,
        "median": median / size,
        "median_text": f"{number(median, unit)} {unit.name if unit else ''}".strip(),
    }
