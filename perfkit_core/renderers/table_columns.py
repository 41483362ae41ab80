"""Columns of a table for people: heading, unit and number format, from their declarations.

Columns that are compared (total, average, minimum, maximum; base, other, difference and its terms; the columns of
several runs) have the same unit, chosen by the largest of them so that no number reaches tens of thousands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from perfkit_core.language import units
from perfkit_core.language.messages import mark, say
from perfkit_core.model.columns import MEASURE, POSITION, Column, column, is_term, quantity
from perfkit_core.renderers import cells

_SORTS: Final = {
    "ns": mark("time"),
    "bytes": mark("memory"),
    "bytes_per_s": mark("bandwidth"),
    "ratio": "%",
}


def heading(column: Column) -> str:
    """Return the heading of a column without its unit."""
    return column.title if column.proper else say(column.title)


def without_units(columns: Sequence[Column], others: Iterable[Column]) -> list[str]:
    """Return headings for a sentence, each once.

    A heading that a column of ``others`` has too, and that of a share unless its quantity is in ``columns``, says what
    it counts: "Allocated (memory)". ``Allocated`` alone needs its unit to be understood, ``Allocated memory`` does not.
    """
    taken = {declared.title for declared in others}
    quantities = {declared.title for declared in columns if declared.unit != "ratio"}
    headings = []
    for declared in columns:
        text = heading(declared)
        unique = declared.title in quantities if declared.unit == "ratio" else declared.title not in taken
        if declared.name == declared.unit:
            headings.append(text)
        elif not unique:
            counted = declared.unit in _SORTS
            headings.append(say("{column} ({what})", column=text, what=say(_SORTS[declared.unit])) if counted else text)
        elif declared.unit != "bytes" or declared.title.endswith(" memory"):
            headings.append(text)
        else:
            template = mark("{column} size") if declared.noun == "size" else mark("{column} memory")
            headings.append(say(template, column=text))
    return list(dict.fromkeys(headings))


def scales(columns: Iterable[tuple[Column, units.Values]], fixed: str | None = None) -> dict[str, units.Unit]:
    """Return the unit of each column that has one, by name. ``fixed`` ("ns", "us", "ms", "s") is that of all times."""
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
    """Return one unit for several columns like this one, that of the tallest; None where it has none."""
    family = next((family for family in units.FAMILIES if family.suffix == column.unit), None)
    return units.group_unit(cells, family) if family else None


_DEPTH: Final = "depth"
_COMPARED: Final = ("ns", "bytes")
"""Units of the columns that get bars, in order of preference."""


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column as people see it: one text a row.

    ``shares``: set if the cells are shares of a whole (1 is all of it) or are compared with the largest of them.
    ``order``: set if they are numbers: the exact number to sort by, or "" where unknown.
    """

    declared: Column
    label: str
    numeric: bool
    cells: tuple[str, ...]
    shares: tuple[float | None, ...] | None = None
    order: tuple[str, ...] = ()

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
    """Return the columns of a table that hold at least one value, formatted. An empty table keeps its columns.

    Units suit the ``first`` rows (None: all), which people see; ``unit`` sets that of all times. In a tree (a table
    with a column ``depth``) the names come first, indented, and the depth is not shown.
    """
    declarations = tuple(declared)
    pairs = [(column(declarations, str(name)), values(table[name])) for name in table.columns]
    known = [pair for pair in pairs if not pair[1] or any(value is not None for value in pair[1])]
    forms = _formats([(declaration, values_of[:first]) for declaration, values_of in known], unit)
    shown = _with_bars([_shown(declaration, values_of, forms[declaration.name]) for declaration, values_of in known])
    if _DEPTH not in table.columns:
        return shown
    depths = [int(depth) for depth in table[_DEPTH]]
    names = [
        replace(one, cells=tuple(indent * depth + cell for depth, cell in zip(depths, one.cells, strict=True)))
        for one in shown if one.name == "name"
    ]  # fmt: skip
    return [*names, *(one for one in shown if one.name not in (_DEPTH, "name"))]


def values(column: pd.Series) -> list[Any]:
    """Return the cells of a column, None where unknown."""
    missing = column.isna().to_list()
    return [None if null else value for value, null in zip(column.to_list(), missing, strict=True)]


def _formats(columns: Sequence[tuple[Column, units.Values]], fixed: str | None) -> dict[str, units.ColumnFormat]:
    """Return how the numbers of each column are written; ``fixed`` as in :func:`scales`.

    The terms of a difference, and the columns of several runs, have the same decimals if they have the same unit.
    """
    unit_of = scales(columns, fixed)
    values_of_group: dict[object, list[Any]] = {}
    groups: dict[str, object] = {}
    for shown, values_of in columns:
        compared = shown.proper or is_term(shown)
        groups[shown.name] = (unit_of.get(shown.name), quantity(shown)) if compared else shown.name
        values_of_group.setdefault(groups[shown.name], []).extend(values_of)
    forms = {}
    for shown, _ in columns:
        unit = unit_of.get(shown.name)
        # a unit that was asked for may need more decimals than one that suits
        most = unit.decimals if unit and fixed and shown.unit == "ns" else units.DECIMALS
        compared_values = values_of_group[groups[shown.name]]
        forms[shown.name] = units.column_format(
            compared_values, unit, most, separated=shown.kind in (MEASURE, POSITION)
        )
    return forms


def _shown(declared: Column, values: Sequence[Any], form: units.ColumnFormat) -> ShownColumn:
    label = heading(declared)
    if not values or not all(value is None or units.is_number(value) for value in values):
        return ShownColumn(declared, label, False, tuple(cells.text(value, declared) for value in values))
    shares = None
    is_share = declared.unit == "ratio" and "change" not in declared.name
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
    """Compare the first times, or else sizes, with the largest of them if no column has shares of a whole."""
    if any(column.shares for column in shown):
        return shown
    candidates = []
    for at, one in enumerate(shown):
        if one.declared.unit in _COMPARED and one.declared.kind != POSITION:
            numbers = {float(value) for value in one.order if value}
            if len(one.order) > 2 and len(numbers) > 1 and min(numbers) >= 0:
                candidates.append((_COMPARED.index(one.declared.unit), at))
    if not candidates:
        return shown
    _, at = min(candidates)
    values = [float(value) if value else None for value in shown[at].order]
    largest = max(value for value in values if value is not None)
    compared = replace(shown[at], shares=tuple(None if value is None else value / largest for value in values))
    return [*shown[:at], compared, *shown[at + 1 :]]
