"""What a page needs to draw how differences lead from one total to another."""

from __future__ import annotations

from typing import Any, Final

from perfkit_core.language.columns import worded
from perfkit_core.renderers.cells import number, visible
from perfkit_core.renderers.columns import values
from perfkit_core.renderers.families import Unit
from perfkit_core.renderers.headings import heading
from perfkit_core.renderers.scales import common_unit
from perfkit_core.renderers.shortening import cut
from perfkit_core.renderers.values import plain
from perfkit_core.report.model import Chart, Section

_BAR: Final = 22
"""Pixels."""
_AROUND: Final = 60
_SHORT: Final = 46
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
        "height": _AROUND + _BAR * len(table),
        "names": names,
        "short": [cut(name, _SHORT) for name in names],
        "unit": unit.name if unit else "",
        "title": heading(section.column(reached)),
        "differences": [None if value is None else value / size for value in values(table[difference])],
        "reached": [value / size for value in values(table[reached])],
        "texts": [_text(*row, unit) for row in zip(values(table[difference]), values(table[reached]), strict=True)],
    }


def _text(difference: int | None, reached: int, unit: Unit | None) -> str:
    """A total as it is, a difference with its sign."""
    if difference is None:
        return number(reached, unit)
    return f"{'+' if difference > 0 else ''}{number(difference, unit)}"
