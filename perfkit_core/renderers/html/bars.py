"""Where do the intervals of a table lie? A picture without a script: positions in percent, and the numbers in words.

What is a whole made of? One bar of parts, a picture without a script: widths in percent, numbers in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfkit_core.language.messages import say
from perfkit_core.language.units import Unit, format_in, format_ratio, with_unit
from perfkit_core.renderers.cells import text
from perfkit_core.renderers.table_columns import common_unit, values
from perfkit_core.report.model import Section

MOST: Final = 200
"""Rows of a picture; the table has all."""
_TICKS: Final = 5
_ENDS: Final = 3

Ends = tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Mark:
    """One interval: ``left``, ``middle`` and ``width`` in percent of the picture."""

    left: float
    middle: float
    width: float


@dataclass(frozen=True, slots=True)
class Row:
    """``marks``: one a name, None where unknown; ``joined``: from the first middle to the second (left, width);
    ``key``: the row's ``id``, "" without one."""

    label: str
    key: str
    marks: tuple[Mark | None, ...]
    joined: tuple[float, float] | None
    said: str


@dataclass(frozen=True, slots=True)
class Spans:
    """The picture: names of what is drawn, rows, lines of the scale (percent, text), how many rows it leaves out."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int


def spans(section: Section) -> Spans | None:
    """The picture of a section whose chart is of intervals; None without data."""
    chart, table = section.chart, section.table
    if chart is None or chart.kind != "intervals" or table.empty or not set(chart.y) <= set(table.columns):
        return None
    shown = table.head(MOST)
    columns = {name: values(shown[name]) for name in dict.fromkeys(chart.y)}
    known = [float(one) for column in columns.values() for one in column if one is not None]
    if not known:
        return None
    unit = common_unit(section.column(chart.y[0]), columns.values())
    ticks = _ticks(min(0.0, *known), max(0.0, *known), unit)
    scale = ticks[0][0], ticks[-1][0]
    labels = [text(one, section.column(chart.x)) for one in values(shown[chart.x])]
    keys = [str(one or "") for one in values(shown["id"])] if "id" in shown else [""] * len(shown)
    rows = zip(labels, keys, _intervals(chart.y, columns), strict=True)
    return Spans(
        tuple(say(name) for name in chart.names),
        tuple(_row(label, key, ends, unit, scale) for label, key, ends in rows),
        tuple((_place(at, scale), said) for at, said in ticks),
        len(table) - len(shown),
    )


def _intervals(names: Sequence[str], columns: dict[str, list[Any]]) -> Iterator[list[Ends]]:
    """Of each row its intervals."""
    groups = [names[at : at + _ENDS] for at in range(0, len(names), _ENDS)]
    for row in range(len(columns[names[0]])):
        yield [(columns[low][row], columns[middle][row], columns[high][row]) for low, middle, high in groups]


def _row(label: str, key: str, ends: list[Ends], unit: Unit | None, scale: tuple[float, float]) -> Row:
    marks = tuple(_mark(one, scale) for one in ends)
    first, second = (*marks, None)[:2]
    joined = None
    if first is not None and second is not None:
        left = min(first.middle, second.middle)
        joined = left, round(max(first.middle, second.middle) - left, 2)
    return Row(label, key, marks, joined, _said(ends, unit))


def _mark(ends: Ends, scale: tuple[float, float]) -> Mark | None:
    low, middle, high = ends
    if middle is None:
        return None
    left = _place(middle if low is None else low, scale)
    right = _place(middle if high is None else high, scale)
    return Mark(left, _place(middle, scale), round(right - left, 2))


def _place(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return round(100 * (float(value) - low) / ((high - low) or 1.0), 2)


def _ticks(low: float, high: float, unit: Unit | None) -> list[tuple[float, str]]:
    """Round numbers from below the lowest to above the highest."""
    size = unit.size if unit else 1.0
    low, high = low / size, high / size
    wide = (high - low) or 1.0
    rough = wide / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), max(math.ceil(high / step - 1e-9), math.floor(low / step + 1e-9) + 1)
    return [(at * step * size, with_unit(f"{at * step:g}", unit)) for at in range(first, last + 1)]


def _said(ends: list[Ends], unit: Unit | None) -> str:
    """``176 (174–177) → 116 (107–128) ms``: the first two of a row; what has no interval has none."""
    name = f" {unit.name}" if unit and unit.name != "%" else ""
    known = [one for one in ends[:2] if one[1] is not None]
    return " → ".join(_interval(one, unit) + (name if known and one is known[-1] else "") for one in ends[:2])


def _interval(ends: Ends, unit: Unit | None) -> str:
    low, middle, high = ends
    if middle is None:
        return say("not known")
    if low is None or high is None or low == high:
        return _number(middle, unit)
    dash = "–" if low >= 0 else "…"
    return f"{_number(middle, unit)} ({_number(low, unit)}{dash}{_number(high, unit)})"


def _number(value: float, unit: Unit | None) -> str:
    """Times have one unit after all of them, shares have it each."""
    number = format_in(value, unit)
    return with_unit(number, unit) if unit is not None and unit.name == "%" else number


COLOURS: Final = 8
"""Of the style sheet; further parts begin anew."""


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
        Part(
            text(name, section.column(chart.x)),
            round(100 * size / whole, 2),
            format_ratio(size / whole),
            position % COLOURS,
        )
        for position, (name, size) in enumerate(named)
        if size > 0
    )
