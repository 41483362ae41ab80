"""A table as people are shown it: columns with heading, unit and number format, as their declarations say.

What columns are called, in the language of the moment.

The unit of each column of a table: one for all statistics of a quantity, and one that reads well.

What compares (total, average, minimum, maximum; base, other, difference and its parts; the columns of several runs) has
the same unit, chosen by the larger of them, and nothing is shown in tens of thousands of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from perfkit_core.language.messages import mark, say
from perfkit_core.language.units import (
    DECIMALS,
    FAMILIES,
    TIME_UNITS,
    TIMES,
    ColumnFormat,
    Unit,
    Values,
    column_format,
    column_units,
    group_unit,
    is_number,
)
from perfkit_core.model.columns import MEASURE, POSITION, Column, column, is_term, quantity
from perfkit_core.renderers import cells

_SORTS: Final = {
    "ns": mark("time"),
    "bytes": mark("memory"),
    "bytes_per_s": mark("bandwidth"),
    "ratio": "%",
}


def heading(column: Column) -> str:
    """The heading of a column without its unit."""
    return column.title if column.proper else say(column.title)


def without_units(columns: Sequence[Column], others: Iterable[Column]) -> list[str]:
    """Headings for a sentence, each once.

    One that a column of ``others`` has too says what it counts; so does a share, unless that is of one of ``columns``.
    """
    taken = {column.title for column in others}
    whole = {column.title for column in columns if column.unit != "ratio"}

    def clear(column: Column) -> bool:
        return column.title in whole if column.unit == "ratio" else column.title not in taken

    return list(dict.fromkeys(_in_words(column) if clear(column) else _counted(column) for column in columns))


def _counted(column: Column) -> str:
    if column.unit not in _SORTS or column.name == column.unit:
        return heading(column)
    return say("{column} ({what})", column=heading(column), what=say(_SORTS[column.unit]))


def _in_words(column: Column) -> str:
    """``Allocated`` needs its unit to be understood, ``Allocated memory`` does not."""
    if column.unit != "bytes" or column.name == column.unit or column.title.endswith(" memory"):
        return heading(column)
    if column.noun == "size":
        return say("{column} size", column=heading(column))
    return say("{column} memory", column=heading(column))


def scales(columns: Iterable[tuple[Column, Values]], fixed: str | None = None) -> dict[str, Unit]:
    """Return the unit of each column that has one, by its name, from the cells; ``fixed`` ("ns", "us", "ms", "s") is
    that of all times."""
    units: dict[str, Unit] = {}
    columns = tuple(columns)
    for family in FAMILIES:
        of_family = [(column, cells) for column, cells in columns if column.unit == family.suffix]
        if family is TIMES and fixed:
            units |= {column.name: TIME_UNITS[fixed] for column, _ in of_family}
            continue
        groups: dict[tuple[str, str], list[tuple[Column, Values]]] = {}
        for member in of_family:
            groups.setdefault(quantity(member[0]), []).append(member)
        chosen = column_units([[cells for _, cells in group] for group in groups.values()], family)
        for group, group_units in zip(groups.values(), chosen, strict=True):
            units |= {column.name: unit for (column, _), unit in zip(group, group_units, strict=True)}
    return units


def common_unit(column: Column, cells: Iterable[Values]) -> Unit | None:
    """Return one unit for several columns like this one, that of the tallest; None where it has none."""
    family = next((family for family in FAMILIES if family.suffix == column.unit), None)
    return group_unit(cells, family) if family else None


_DEPTH: Final = "depth"
_COMPARED: Final = ("ns", "bytes")
"""What is compared with the largest, the more telling first."""


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column ready for people: one text a row. ``shares`` is set where cells are shares of a whole (1 is all), or are
    seen beside the largest of them; ``order`` where they are numbers: what to sort them by, the exact number, or ""
    where unknown."""

    declared: Column
    label: str
    numeric: bool
    cells: tuple[str, ...]
    shares: tuple[float | None, ...] | None = None
    order: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the column in the table."""
        return self.declared.name


def columns(
    table: pd.DataFrame,
    declared: Iterable[Column] = (),
    first: int | None = None,
    unit: str | None = None,
    indent: str = "  ",
) -> list[ShownColumn]:
    """The columns of a table that hold at least one value, formatted. An empty table keeps its columns.

    Units suit the ``first`` rows (None: all), which are what people look at; ``unit`` sets that of all times.
    In a tree (a table with a column ``depth``) the names are indented instead of showing the depth.
    """
    shown = _with_bars(_formatted(table, tuple(declared), first, unit))
    return _indented(table, shown, indent) if _DEPTH in table.columns else shown


def values(column: pd.Series) -> list[Any]:
    """The cells of a column, None where unknown."""
    missing = column.isna().to_list()
    return [None if null else value for value, null in zip(column.to_list(), missing, strict=True)]


def _indented(table: pd.DataFrame, shown: list[ShownColumn], indent: str) -> list[ShownColumn]:
    names = [one for one in shown if one.name == "name"]
    others = [one for one in shown if one.name not in (_DEPTH, "name")]
    depths = [int(depth) for depth in table[_DEPTH]]
    return [
        replace(one, cells=tuple(indent * d + cell for d, cell in zip(depths, one.cells, strict=True))) for one in names
    ] + others


def _formatted(
    table: pd.DataFrame, declared: Sequence[Column], first: int | None, unit: str | None
) -> list[ShownColumn]:
    whole = [(column(declared, str(name)), values(table[name])) for name in table.columns]
    known = [pair for pair in whole if not pair[1] or any(value is not None for value in pair[1])]
    forms = _formats([(declared_column, values_of[:first]) for declared_column, values_of in known], unit)
    return [_column(declared_column, values_of, forms[declared_column.name]) for declared_column, values_of in known]


def _formats(columns: Sequence[tuple[Column, Values]], fixed: str | None) -> dict[str, ColumnFormat]:
    """Return how the numbers of each column are written; ``fixed`` as in :func:`scales`.

    The terms of a difference, and several runs, are read together: they have the same decimals where they have the same
    unit.
    """
    units = scales(columns, fixed)
    together: dict[object, list[Any]] = {}
    beside: dict[str, object] = {}
    for shown, values_of in columns:
        compared = shown.proper or is_term(shown)
        beside[shown.name] = (units.get(shown.name), quantity(shown)) if compared else shown.name
        together.setdefault(beside[shown.name], []).extend(values_of)
    forms = {}
    for shown, _ in columns:
        unit = units.get(shown.name)
        # A unit that was asked for may need more decimals than one that suits.
        most = unit.decimals if unit and fixed and shown.unit == "ns" else DECIMALS
        compared_values = together[beside[shown.name]]
        forms[shown.name] = column_format(compared_values, unit, most, separated=shown.kind in (MEASURE, POSITION))
    return forms


def _with_bars(shown: list[ShownColumn]) -> list[ShownColumn]:
    """Where nothing is a share of a whole, the first times, or else sizes, are compared with the largest of them."""
    if any(one.shares for one in shown):
        return shown
    found = [(_COMPARED.index(one.declared.unit), at) for at, one in enumerate(shown) if _comparable(one)]
    if not found:
        return shown
    _, at = min(found)
    numbers = [float(value) if value else None for value in shown[at].order]
    largest = max(value for value in numbers if value is not None)
    compared = replace(shown[at], shares=tuple(None if value is None else value / largest for value in numbers))
    return [*shown[:at], compared, *shown[at + 1 :]]


def _comparable(shown: ShownColumn) -> bool:
    if shown.declared.unit not in _COMPARED or shown.declared.kind == POSITION:
        return False
    numbers = {float(value) for value in shown.order if value}
    return len(shown.order) > 2 and len(numbers) > 1 and min(numbers) >= 0


def _column(known: Column, found: Sequence[Any], form: ColumnFormat) -> ShownColumn:
    label = heading(known)
    if not found or not all(value is None or is_number(value) for value in found):
        return ShownColumn(known, label, False, tuple(cells.text(value, known) for value in found))
    label = f"{label} ({form.unit.name})" if form.unit else label
    texts = tuple(cells.MISSING if value is None else form.text(value) for value in found)
    order = tuple("" if value is None else str(value) for value in found)
    return ShownColumn(known, label, True, texts, _shares(known, found), order)


def _shares(known: Column, found: Sequence[Any]) -> tuple[float | None, ...] | None:
    """Shares of a whole; None where a number cannot be one."""
    if known.unit != "ratio" or "change" in known.name or any(value is not None and value < 0 for value in found):
        return None
    return tuple(None if value is None else float(value) for value in found)
