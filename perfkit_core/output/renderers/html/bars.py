"""Charts without scripts: intervals from low to high, a bar of shares, and the bars of a waterfall. Positions are
percentages of the width."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from perfkit_core.base.language.messages import say
from perfkit_core.base.language.units import Unit, format_in, format_ratio, with_unit
from perfkit_core.output.renderers.cells import text
from perfkit_core.output.renderers.html import charts, colours
from perfkit_core.output.renderers.table_columns import common_unit, values
from perfkit_core.trace.model.report_data import Section

MOST: Final = 200
"""Maximum number of drawn rows."""
_TICKS: Final = 5
_ENDS: Final = 3

Ends = tuple[float | None, float | None, float | None]


class Mark(NamedTuple):
    """One interval. ``left`` is the low end. All numbers are in percent of the width of the chart."""

    left: float
    middle: float
    width: float


class Row(NamedTuple):
    """One row of a chart of intervals."""

    label: str
    key: str  # ``id`` of the row, "" if it has none
    marks: tuple[Mark | None, ...]  # one item per interval, None if the interval is unknown
    joined: tuple[float, float] | None  # left end and width of the line that joins the first two intervals
    numbers: str  # of the row, as text


class Spans(NamedTuple):
    """A chart of intervals. ``ticks`` are (position, text). ``left_out`` is the number of rows that are not drawn."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int


def spans(section: Section) -> Spans | None:
    """Return the chart of intervals of a section, or None if the section has no such chart or no data."""
    chart, table = section.chart, section.table
    if chart is None or chart.kind != "intervals" or table.empty or not set(chart.y) <= set(table.columns):
        return None
    shown = table.head(MOST)
    columns = {name: values(shown[name]) for name in dict.fromkeys(chart.y)}
    numbers = [float(value) for column in columns.values() for value in column if value is not None]
    if not numbers:
        return None
    unit = common_unit(section.column(chart.y[0]), columns.values())
    ticks = _ticks(min(0.0, *numbers), max(0.0, *numbers), unit)
    scale = ticks[0][0], ticks[-1][0]
    labels = [text(label, section.column(chart.x)) for label in values(shown[chart.x])]
    keys = [str(key or "") for key in values(shown["id"])] if "id" in shown else [""] * len(shown)
    triples = [chart.y[at : at + _ENDS] for at in range(0, len(chart.y), _ENDS)]
    rows = []
    for at, (label, key) in enumerate(zip(labels, keys, strict=True)):
        ends: list[Ends] = [(columns[low][at], columns[mid][at], columns[high][at]) for low, mid, high in triples]
        marks = tuple(_mark(interval, scale) for interval in ends)
        first, second = (*marks, None)[:2]
        joined = None
        if first is not None and second is not None:
            left = min(first.middle, second.middle)
            joined = left, round(max(first.middle, second.middle) - left, 2)
        rows.append(Row(label, key, marks, joined, _in_words(ends, unit)))
    return Spans(
        tuple(say(name) for name in chart.names),
        tuple(rows),
        tuple((_percent(at, scale), label) for at, label in ticks),
        len(table) - len(shown),
    )


def _mark(ends: Ends, scale: tuple[float, float]) -> Mark | None:
    low, middle, high = ends
    if middle is None:
        return None
    left = _percent(middle if low is None else low, scale)
    right = _percent(middle if high is None else high, scale)
    return Mark(left, _percent(middle, scale), round(right - left, 2))


def _percent(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return round(100 * (float(value) - low) / ((high - low) or 1.0), 2)


def _ticks(low: float, high: float, unit: Unit | None) -> list[tuple[float, str]]:
    size = unit.size if unit else 1.0
    low, high = low / size, high / size
    rough = ((high - low) or 1.0) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [(at * step * size, with_unit(f"{at * step:g}", unit)) for at in range(first, last + 1)]


def _in_words(ends: list[Ends], unit: Unit | None) -> str:
    """Return a text such as ``176 (174–177) → 116 (107–128) ms``. The text shows the first two intervals of a row. Each
    interval has the form ``middle (low–high)``. The unit is written once, except ``%``, which follows every number."""

    def number(value: float) -> str:
        return with_unit(format_in(value, unit), unit) if is_share else format_in(value, unit)

    is_share = unit is not None and unit.name == "%"
    words, last_known = [], None
    for at, (low, middle, high) in enumerate(ends[:2]):
        if middle is None:
            words.append(say("unknown"))
            continue
        last_known = at
        if low is None or high is None or low == high:
            words.append(number(middle))
        else:
            words.append(f"{number(middle)} ({number(low)}{'–' if low >= 0 else '…'}{number(high)})")
    if unit is not None and not is_share and last_known is not None:
        words[last_known] += f" {unit.name}"
    return " → ".join(words)


class Part(NamedTuple):
    """One part of a bar. ``width`` is in percent. ``colour`` is the name of a colour."""

    label: str
    width: float
    numbers: str
    colour: str


def parts(section: Section) -> tuple[Part, ...]:
    """Return the parts of a bar chart of shares, without parts of size 0. Return () for any other chart."""
    chart, table = section.chart, section.table
    if chart is None or chart.kind != "share" or table.empty:
        return ()
    sizes = [float(value or 0) for value in values(table[chart.y[0]])]
    total = sum(sizes)
    names = values(table[chart.x])
    return tuple(
        Part(text(name, section.column(chart.x)), round(100 * size / total, 2), format_ratio(size / total), colour)
        for name, size, colour in zip(names, sizes, colours.of_names(map(str, names)), strict=True)
        if size > 0
    )


class Fall(NamedTuple):
    """One bar of a waterfall. ``left`` and ``width`` are in percent. ``colour`` is the name of a colour."""

    label: str
    left: float
    width: float
    numbers: str
    colour: str


def waterfall(section: Section) -> tuple[Fall, ...]:
    """Return the bars of a waterfall chart. Return () for any other chart."""
    chart = section.chart
    if chart is None or chart.kind != "waterfall" or section.table.empty:
        return ()
    figure = charts.waterfall(section, chart)
    reached = figure["reached"]
    low, high = min(reached), max(reached)
    spread = (high - low) or abs(high) or 1
    # The axis begins at 0, unless the differences would be too small to see.
    start = low - spread / 2 if low > spread else low - spread / 5 if low < 0 else 0
    scale = start, max(high, 0)
    bars = []
    for label, change, total, numbers in zip(
        figure["short"], figure["differences"], reached, figure["texts"], strict=True
    ):
        before = start if change is None else total - change
        left, right = _percent(min(before, total), scale), _percent(max(before, total), scale)
        colour = "total" if change is None else "more" if change > 0 else "less"
        bars.append(Fall(label, left, round(right - left, 2), f"{numbers} {figure['unit']}", colour))
    return tuple(bars)
