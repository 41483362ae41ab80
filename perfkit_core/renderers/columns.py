"""How is a table shown to people? Columns with heading, unit and number format, all told by the columns' names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from perfkit_core.language import say
from perfkit_core.language.units import DECIMALS, ColumnFormat, Values, column_format, is_number
from perfkit_core.renderers import cells
from perfkit_core.renderers.families import SHARES, SIZES, TIMES, family, is_term, quantity
from perfkit_core.renderers.headings import label
from perfkit_core.renderers.scales import scales

_DEPTH: Final = "depth"
_KINDS: Final = (TIMES, SIZES)
"""What is compared with the largest, the more telling first."""
_POSITIONS: Final = ("start_ns", "time_ns", "end_ns", "peak_time_ns")
"""Points in time, which are no larger than others."""
_NAMING: Final = frozenset(("depth", "rank", "step", "pid", "tid", "stream", "node", "line", "line2", "before", "after",
                            "after_on_stream", "forward", "group"))  # fmt: skip
"""Numbers that name a thing and count nothing."""
NO_HEADINGS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Column:
    """A column ready for people: one text a row. ``shares`` is set where cells are shares of a whole (1 is all), or are
    seen beside the largest of them; ``order`` where they are numbers: what to sort them by, the exact number, or ""
    where unknown."""

    name: str
    label: str
    numeric: bool
    cells: tuple[str, ...]
    shares: tuple[float | None, ...] | None = None
    order: tuple[str, ...] = ()


def columns(
    table: pd.DataFrame,
    first: int | None = None,
    unit: str | None = None,
    indent: str = "  ",
    headings: Mapping[str, str] = NO_HEADINGS,
) -> list[Column]:
    """The columns of a table that hold at least one value, formatted. An empty table keeps its columns.

    Units suit the ``first`` rows (None: all), which are what people look at; ``unit`` sets that of all times.
    ``headings`` are names that stand over columns as they are: those of several runs, or devices, which have one unit.
    In a tree (a table with a column ``depth``) the names are indented instead of showing the depth.
    """
    shown = _with_bars(_formatted(table, first, unit, headings))
    return _indented(table, shown, indent) if _DEPTH in table.columns else shown


def values(column: pd.Series) -> list[Any]:
    """The cells of a column, None where unknown."""
    missing = column.isna().to_list()
    return [None if null else value for value, null in zip(column.to_list(), missing, strict=True)]


def _indented(table: pd.DataFrame, shown: list[Column], indent: str) -> list[Column]:
    names = [column for column in shown if column.name == "name"]
    others = [column for column in shown if column.name not in (_DEPTH, "name")]
    depths = [int(depth) for depth in table[_DEPTH]]
    return [
        replace(column, cells=tuple(indent * d + cell for d, cell in zip(depths, column.cells, strict=True)))
        for column in names
    ] + others


def _formatted(table: pd.DataFrame, first: int | None, unit: str | None, headings: Mapping[str, str]) -> list[Column]:
    whole = {str(name): values(table[name]) for name in table.columns}
    known = {name: cells for name, cells in whole.items() if not cells or any(value is not None for value in cells)}
    forms = _formats({name: cells[:first] for name, cells in known.items()}, unit, headings)
    return [_column(name, headings.get(name) or say(label(name)), known[name], forms[name]) for name in known]


def _formats(columns: Mapping[str, Values], fixed: str | None, alike: Collection[str]) -> dict[str, ColumnFormat]:
    """Return how the numbers of each column are written; ``fixed`` and ``alike`` as in :func:`scales`.

    The terms of a difference, and several runs, are read together: they have the same decimals where they have the same
    unit.
    """
    units = scales(columns, fixed, alike)
    beside: dict[str, object] = {name: name for name in columns}
    beside |= {name: (units.get(name), quantity(name)) for name in columns if is_term(name)}
    beside |= {name: units.get(name) for name in columns if name in alike}
    together: dict[object, list[Any]] = {}
    for name, column in columns.items():
        together.setdefault(beside[name], []).extend(column)
    forms = {}
    for name in columns:
        unit = units.get(name)
        # A unit that was asked for may need more decimals than one that suits.
        most = unit.decimals if unit and fixed and family(name) is TIMES else DECIMALS
        names_things = name in _NAMING or name.endswith(("_rank", "_step"))
        forms[name] = column_format(together[beside[name]], unit, most, separated=not names_things)
    return forms


def _with_bars(shown: list[Column]) -> list[Column]:
    """Where nothing is a share of a whole, the first times, or else sizes, are compared with the largest of them."""
    if any(column.shares for column in shown):
        return shown
    found = [
        (_KINDS.index(kind), at) for at, one in enumerate(shown) if (kind := family(one.name)) and _comparable(one)
    ]
    if not found:
        return shown
    _, at = min(found)
    numbers = [float(value) if value else None for value in shown[at].order]
    largest = max(value for value in numbers if value is not None)
    compared = replace(shown[at], shares=tuple(None if value is None else value / largest for value in numbers))
    return [*shown[:at], compared, *shown[at + 1 :]]


def _comparable(column: Column) -> bool:
    numbers = {float(value) for value in column.order if value}
    several = len(column.order) > 2 and len(numbers) > 1
    return family(column.name) in _KINDS and column.name not in _POSITIONS and several and min(numbers) >= 0


def _column(name: str, heading: str, column: Sequence[Any], form: ColumnFormat) -> Column:
    if not column or not all(value is None or is_number(value) for value in column):
        return Column(name, heading, False, tuple(cells.text(value, name) for value in column))
    heading = f"{heading} ({form.unit.name})" if form.unit else heading
    texts = tuple(cells.MISSING if value is None else form.text(value) for value in column)
    order = tuple("" if value is None else str(value) for value in column)
    return Column(name, heading, True, texts, _shares(name, column), order)


def _shares(name: str, column: Sequence[Any]) -> tuple[float | None, ...] | None:
    """Shares of a whole; None where a number cannot be one."""
    if family(name) is not SHARES or "change" in name or any(value is not None and value < 0 for value in column):
        return None
    return tuple(None if value is None else float(value) for value in column)
