"""A table as people are shown it: columns with heading, unit and number format, as their declarations say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from perfkit_core.renderers import cells
from perfkit_core.renderers.families import Unit
from perfkit_core.renderers.headings import heading
from perfkit_core.renderers.scales import is_number, scales
from perfkit_core.table_columns import POSITION, Column, column

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
    units = scales([(known, found[:first]) for known, found in whole], unit)
    return [
        _column(known, found, units.get(known.name))
        for known, found in whole
        if not found or any(value is not None for value in found)
    ]


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


def _column(known: Column, found: Sequence[Any], unit: Unit | None) -> ShownColumn:
    label = heading(known)
    if not found or not all(value is None or is_number(value) for value in found):
        return ShownColumn(known, label, False, tuple(cells.text(value, known) for value in found))
    label = f"{label} ({unit.name})" if unit else label
    texts = tuple(cells.number(value, unit) for value in found)
    order = tuple("" if value is None else str(value) for value in found)
    return ShownColumn(known, label, True, texts, _shares(known, found), order)


def _shares(known: Column, found: Sequence[Any]) -> tuple[float | None, ...] | None:
    """Shares of a whole; None where a number cannot be one."""
    if known.unit != "ratio" or "change" in known.name or any(value is not None and value < 0 for value in found):
        return None
    return tuple(None if value is None else float(value) for value in found)
