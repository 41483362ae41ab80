"""What is a whole made of? One bar of parts, a picture without a script: widths in percent, numbers in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from perfkit_core.renderers.cells import text
from perfkit_core.renderers.columns import values
from perfkit_core.report.model import Section

COLOURS: Final = 8
"""Of the style sheet; further parts begin anew."""
_LEAST: Final = 0.0005
"""A share that would be shown as none."""


@dataclass(frozen=True, slots=True)
class Part:
    """``width`` in percent of the bar, ``colour`` a number of the style sheet's."""

    label: str
    width: float
    said: str
    colour: int


def parts(section: Section) -> tuple[Part, ...]:
    """The parts of a section whose chart is of shares, those of nothing left out; none without data."""
    chart, table = section.chart, section.table
    if chart is None or chart.kind != "share" or table.empty:
        return ()
    sizes = [float(one or 0) for one in values(table[chart.y[0]])]
    whole = sum(sizes)
    named = zip(values(table[chart.x]), sizes, strict=True)
    return tuple(
        Part(text(name, section.column(chart.x)), round(100 * size / whole, 2), _said(size / whole), position % COLOURS)
        for position, (name, size) in enumerate(named)
        if size > 0
    )


def _said(share: float) -> str:
    return f"{share:.1%}" if share >= _LEAST else "<0.1%"
