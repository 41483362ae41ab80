"""What a page needs to draw how differences lead from one total to another."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from perfkit_core.language import say
from perfkit_core.language.columns import worded
from perfkit_core.language.units import format_in
from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import values
from perfkit_core.renderers.families import Unit
from perfkit_core.renderers.headings import label
from perfkit_core.renderers.scales import common_unit
from perfkit_core.renderers.shortening import cut
from perfkit_core.renderers.values import plain
from perfkit_core.report.model import Chart

_BAR: Final = 22
"""Pixels."""
_AROUND: Final = 60
_SHORT: Final = 46
"""Characters of a name beside a bar."""


def waterfall(chart: Chart, table: pd.DataFrame) -> dict[str, Any]:
    """``{"kind", "height" (pixels), "names", "short", "unit", "title" (of the axis), "differences" (None: a total),
    "reached", "texts" (of the bars)}``."""
    difference, reached = chart.y
    unit = common_unit({name: values(table[name]) for name in chart.y})
    size = unit.size if unit else 1.0
    names = [visible(worded(str(plain(name)), chart.x)) for name in table[chart.x].to_list()]
    return {
        "kind": chart.kind,
        "height": _AROUND + _BAR * len(table),
        "names": names,
        "short": [cut(name, _SHORT) for name in names],
        "unit": unit.name if unit else "",
        "title": say(label(reached)),
        "differences": [None if value is None else value / size for value in values(table[difference])],
        "reached": [value / size for value in values(table[reached])],
        "texts": [_text(*row, unit) for row in zip(values(table[difference]), values(table[reached]), strict=True)],
    }


def _text(difference: int | None, reached: int, unit: Unit | None) -> str:
    """A total as it is, a difference with its sign."""
    if difference is None:
        return format_in(reached, unit)
    return f"{'+' if difference > 0 else ''}{format_in(difference, unit)}"
