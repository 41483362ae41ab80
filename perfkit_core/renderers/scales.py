"""In which unit is each column shown? One for all statistics of a quantity, and where it reads well for the table.

What compares (total, average, minimum, maximum; base, other, difference and its parts; the columns of several runs) has
the same unit, chosen by the larger of them, and nothing is shown in tens of thousands of it.
"""

from __future__ import annotations

import numbers
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

from perfkit_core.renderers.families import TIME_UNITS, UNITS, Unit
from perfkit_core.table_columns import Column, quantity

_SMALL: Final = 0.1
_LARGE: Final = 10_000.0
"""Outside of these, numbers read badly with three decimals."""

Values = Sequence[Any]


def is_number(value: Any) -> bool:
    """Whether a cell is a number that has a magnitude: True and False have none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def scales(columns: Iterable[tuple[Column, Values]], fixed: str | None = None) -> dict[str, Unit]:
    """The unit of each column that has one, by its name, from the cells; ``fixed`` ("ns", "us", "ms", "s") is that of
    all times."""
    units: dict[str, Unit] = {}
    of_unit: dict[str, list[tuple[Column, Values]]] = {}
    for column, values in columns:
        of_unit.setdefault(column.unit, []).append((column, values))
    for unit, mine in of_unit.items():
        if unit == "ns" and fixed:
            units |= {column.name: TIME_UNITS[fixed] for column, _ in mine}
        elif unit in UNITS:
            units |= _of_family(mine, UNITS[unit])
    return units


def common_unit(column: Column, cells: Iterable[Values]) -> Unit | None:
    """One unit for several columns like this one, that of the tallest; None where it has none."""
    return _suiting(cells, UNITS[column.unit]) if column.unit in UNITS else None


def _of_family(columns: Sequence[tuple[Column, Values]], units: Sequence[Unit]) -> dict[str, Unit]:
    groups: dict[object, dict[str, Values]] = {}
    for column, values in columns:
        groups.setdefault(quantity(column), {})[column.name] = values
    middles = [middle for group in groups.values() if (middle := _middle(group.values()))]
    shared = _unit(statistics.median(middles or [0.0]), units)
    return {name: _of_group(group.values(), units, shared) for group in groups.values() for name in group}


def _of_group(group: Iterable[Values], units: Sequence[Unit], shared: Unit) -> Unit:
    """The shared unit, so that columns compare at a glance, unless numbers would be tiny or huge in it."""
    group = list(group)
    middle = _middle(group)
    fits = not middle or (middle / shared.size >= _SMALL and _largest(group) / shared.size < _LARGE)
    return shared if fits or len(units) == 1 else _suiting(group, units)


def _suiting(group: Iterable[Values], units: Sequence[Unit]) -> Unit:
    """The unit of the larger columns' medians, or a larger one if a number needs it."""
    group = list(group)
    unit, largest = _unit(_middle(group), units), _largest(group)
    larger = units[units.index(unit) :]
    return next((unit for unit in larger if largest / unit.size < _LARGE), larger[-1])


def _middle(group: Iterable[Values]) -> float:
    """The largest of the columns' median magnitudes, of numbers other than 0; 0 where there are none."""
    return max((statistics.median(sizes) for sizes in map(_sizes, group) if sizes), default=0.0)


def _largest(group: Iterable[Values]) -> float:
    return max((max(sizes) for sizes in map(_sizes, group) if sizes), default=0.0)


def _sizes(values: Values) -> list[float]:
    return [abs(float(value)) for value in values if is_number(value) and value]


def _unit(middle: float, units: Sequence[Unit]) -> Unit:
    return next((unit for unit in reversed(units) if middle >= unit.size), units[0])
