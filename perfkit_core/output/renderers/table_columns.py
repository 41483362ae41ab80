"""Headings, units and number formats of the columns of a table, in the formats text, Markdown and HTML.

Columns that are compared share one unit. Examples are base, other and difference, or one quantity in several runs.
The unit is chosen for the column with the largest numbers, so that these numbers stay below 10,000."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from perfkit_core.base.language import units
from perfkit_core.base.language.messages import mark, say
from perfkit_core.output.renderers import cells
from perfkit_core.trace.model.columns import (
    CHANGE,
    DEVICE,
    HOST,
    MAX,
    MEASURE,
    MIN,
    POSITION,
    Average,
    Column,
    column,
    label_of,
    quantity,
)

_SORTS: Final = {
    "ns": mark("time"),
    "bytes": mark("memory"),
    "bytes_per_s": mark("bandwidth"),
    "ratio": "%",
}
_RATES: Final = tuple(family.suffix for family in units.PEAKS)
_TIMES_AND_COUNTS: Final = ("ns", "ratio", "count", "")


def heading(column: Column) -> str:
    """Return the heading of a column, which does not contain the unit."""
    return column.title if column.heading == "proper" else say(column.title)


def without_units(columns: Sequence[Column], other_columns: Iterable[Column]) -> list[str]:
    """Return the headings of ``columns`` for a sentence, without duplicates.

    In a table, columns with equal headings have different units. A sentence shows no units, so words are added:

    - A time "Total" becomes "Total (time)" if ``other_columns`` also has a column "Total".
    - A share "Total" becomes "Total (%)", but stays "Total" if ``columns`` also has a time, size or count "Total".
      One "Total" then stands for both columns.
    - A size "Allocated" becomes "Allocated memory"."""
    other_titles = {declared.title for declared in other_columns}
    quantities = {declared.title for declared in columns if declared.unit != "ratio"}
    headings = []
    for declared in columns:
        text = heading(declared)
        unique = declared.title in quantities if declared.unit == "ratio" else declared.title not in other_titles
        if declared.name == declared.unit:
            headings.append(text)
        elif not unique:
            counted = declared.unit in _SORTS
            headings.append(say("{column} ({what})", column=text, what=say(_SORTS[declared.unit])) if counted else text)
        elif declared.unit != "bytes" or declared.heading in ("complete", "proper"):
            headings.append(text)
        else:
            template = mark("{column} size") if declared.heading == "size" else mark("{column} memory")
            headings.append(say(template, column=text))
    return list(dict.fromkeys(headings))


def scales(columns: Iterable[tuple[Column, units.Values]], fixed: str | None = None) -> dict[str, units.Unit]:
    """Return the units of the columns that have one, by name. ``fixed`` (such as "ms") is the unit of all times."""
    unit_of: dict[str, units.Unit] = {}
    columns = tuple(columns)
    for family in units.FAMILIES:
        of_family = [(column, cells) for column, cells in columns if column.unit == family.suffix]
        if family is units.TIMES and fixed:
            unit_of |= {column.name: units.TIME_UNITS[fixed] for column, _ in of_family}
            continue
        groups: dict[tuple[str, str], list[tuple[Column, units.Values]]] = {}
        for member in of_family:
            groups.setdefault(quantity(member[0]), []).append(member)
        chosen = units.column_units([[cells for _, cells in group] for group in groups.values()], family)
        for group, group_units in zip(groups.values(), chosen, strict=True):
            unit_of |= {column.name: unit for (column, _), unit in zip(group, group_units, strict=True)}
    return unit_of


def common_unit(column: Column, cells: Iterable[units.Values]) -> units.Unit | None:
    """Return one unit for the values of several columns, such as ms for columns of times. ``cells`` contains the values
    of each column. ``column`` is one of the columns. Return None for plain numbers and text."""
    family = units.family(column.unit)
    return units.group_unit(cells, family) if family else None


_DEPTH: Final = "depth"
_UNITS_WITH_BARS: Final = ("ns", "bytes")


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A formatted column."""

    declared: Column
    label: str
    numeric: bool
    cells: tuple[str, ...]  # one text per row
    shares: tuple[float | None, ...] | None = None  # lengths of bars from 0 to 1; None for a column without bars
    order: tuple[str, ...] = ()  # sort keys: the exact number of each cell as text ("" if unknown); none for text

    @property
    def name(self) -> str:
        return self.declared.name


def columns(
    table: pd.DataFrame,
    declared: Iterable[Column] = (),
    first: int | None = None,
    unit: str | None = None,
    indent: str = "  ",
) -> list[ShownColumn]:
    """Return the formatted columns of a table. Columns without values are left out, unless no column has a value.

    Units are chosen for the ``first`` rows (None: all rows). If ``unit`` is set, all times have this unit. A table with
    a column ``depth`` is a tree: its first column has indented names, and the column ``depth`` is left out."""
    declarations = tuple(declared)
    pairs = [(column(declarations, str(name)), values(table[name])) for name in table.columns]
    filled = [pair for pair in pairs if any(value is not None for value in pair[1])] or pairs
    forms = _formats([(declaration, values_of[:first]) for declaration, values_of in filled], unit)
    shown = _with_bars([_shown(declaration, values_of, forms[declaration.name]) for declaration, values_of in filled])
    if _DEPTH not in table.columns:
        return shown
    depths, label = [int(depth) for depth in table[_DEPTH]], label_of(table)
    names = [
        replace(c, cells=tuple(indent * depth + cell for depth, cell in zip(depths, c.cells, strict=True)))
        for c in shown if c.name == label
    ]  # fmt: skip
    return [*names, *(c for c in shown if c.name not in (_DEPTH, label))]


def values(column: pd.Series) -> list[Any]:
    """Return the values of a column. Missing values are None."""
    missing = column.isna().to_list()
    return [None if null else value for value, null in zip(column.to_list(), missing, strict=True)]


def _formats(columns: Sequence[tuple[Column, units.Values]], fixed: str | None) -> dict[str, units.ColumnFormat]:
    """Return a dict from column names to formats. Compared columns, such as base, other and difference, have the same
    number of decimals. ``fixed`` (such as "ms") sets the unit of all times."""
    unit_of = scales(columns, fixed)
    values_of_group: dict[object, list[Any]] = {}
    groups: dict[str, object] = {}
    for shown, values_of in columns:
        alike = shown.heading == "proper" or shown.compared
        groups[shown.name] = (unit_of.get(shown.name), quantity(shown)) if alike else shown.name
        values_of_group.setdefault(groups[shown.name], []).extend(values_of)
    forms = {}
    for shown, _ in columns:
        unit = unit_of.get(shown.name)
        # A unit that the user chose may need more decimals than an automatic unit.
        most = unit.decimals if unit and fixed and shown.unit == "ns" else units.DECIMALS
        group, is_amount = values_of_group[groups[shown.name]], shown.kind in (MEASURE, POSITION)
        forms[shown.name] = units.column_format(group, unit, most, separated=is_amount)
    return forms


def _shown(declared: Column, values: Sequence[Any], form: units.ColumnFormat) -> ShownColumn:
    label = heading(declared)
    if not values or not all(value is None or units.is_number(value) for value in values):
        return ShownColumn(declared, label, False, tuple(cells.text(value, declared) for value in values))
    shares = None
    is_share = declared.unit == "ratio" and quantity(declared)[1] != CHANGE
    if is_share and all(value is None or value >= 0 for value in values):
        shares = tuple(None if value is None else float(value) for value in values)
    return ShownColumn(
        declared,
        f"{label} ({form.unit.name})" if form.unit else label,
        True,
        tuple(cells.MISSING if value is None else form.text(value) for value in values),
        shares,
        order=tuple("" if value is None else str(value) for value in values),
    )


def _with_bars(shown: list[ShownColumn]) -> list[ShownColumn]:
    """Add bars to the first column of times. Without times, add them to the first column of sizes. The bar of the
    largest value has length 1. If a column of shares already has bars, none are added."""
    if any(column.shares for column in shown):
        return shown
    candidates = []
    for at, shown_column in enumerate(shown):
        if shown_column.declared.unit in _UNITS_WITH_BARS and shown_column.declared.kind != POSITION:
            numbers = {float(value) for value in shown_column.order if value}
            if len(shown_column.order) > 2 and len(numbers) > 1 and min(numbers) >= 0:
                candidates.append((_UNITS_WITH_BARS.index(shown_column.declared.unit), at))
    if not candidates:
        return shown
    _, at = min(candidates)
    values = [float(value) if value else None for value in shown[at].order]
    largest = max(value for value in values if value is not None)
    compared = replace(shown[at], shares=tuple(None if value is None else value / largest for value in values))
    return [*shown[:at], compared, *shown[at + 1 :]]


def by_worth(shown: Sequence[ShownColumn]) -> list[ShownColumn]:
    """Return the columns with the columns of numbers sorted by their worth. Columns of text keep their places."""
    has_times = any(column.declared.unit == "ns" for column in shown)
    on_device = any(column.declared.place == DEVICE for column in shown)
    measures = iter(sorted(filter(is_measure, shown), key=lambda column: worth(column.declared, has_times, on_device)))
    return [next(measures) if is_measure(column) else column for column in shown]


def worth(column: Column, has_times: bool, on_device: bool) -> int:
    """Return the rank of a column of numbers, 0 for the most important. ``has_times``: the table has times.
    ``on_device``: it has device columns.

    Device times and rates of devices are first, because the device is what a training waits for. Then come counts, and
    times on the host. Without device columns, own times on the host are first. Averages and extremes follow, and, in a
    table of times, sizes."""
    if column.unit in _RATES:
        return 0
    if isinstance(column.merge, Average) or column.merge in (MIN, MAX):
        return 6
    if has_times and column.unit not in _TIMES_AND_COUNTS:
        return 5
    if has_times and column.unit in ("count", ""):
        return 2
    if column.place != HOST:
        return int(column.place == DEVICE and bool(column.own))
    if on_device or not has_times:
        return 4 if column.own else 3
    return 3 if column.own else 1


def is_measure(column: ShownColumn) -> bool:
    return column.numeric and column.declared.kind == MEASURE
