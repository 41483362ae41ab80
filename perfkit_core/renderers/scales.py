"""In which unit is each column shown? One for all statistics of a quantity, and where it reads well for the table.

What compares (total, average, minimum, maximum; base, other, difference and its parts; the columns of several runs) has
the same unit, chosen by the larger of them, and nothing is shown in tens of thousands of it.
"""

from __future__ import annotations

import numbers
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from perfkit_core.renderers.families import FAMILIES, SHARES, TIME_UNITS, TIMES, Family, Unit, family, quantity

_SMALL: Final = 0.1
_LARGE: Final = 10_000.0
"""Outside of these, numbers read badly with three decimals."""

Values = Sequence[Any]
_ALIKE: Final = object()
"""Of columns that are called by names of their own, the quantity."""


def is_number(value: Any) -> bool:
    """Whether a cell is a number that has a magnitude: True and False have none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def scales(columns: Mapping[str, Values], fixed: str | None = None, alike: Collection[str] = ()) -> dict[str, Unit]:
    """The unit of each column of a family (name → cells); ``fixed`` ("ns", "us", "ms", "s") is that of all times.
    ``alike``: columns that tell the same of several things, whatever they are called."""
    units: dict[str, Unit] = {}
    for one in FAMILIES:
        mine = {name: values for name, values in columns.items() if family(name) is one}
        if one is TIMES and fixed:
            units |= dict.fromkeys(mine, TIME_UNITS[fixed])
        else:
            units |= _of_family(mine, one, alike)
    return units


def common_unit(columns: Mapping[str, Values]) -> Unit | None:
    """One unit for several columns, that of the tallest; None where they have none."""
    found = family(next(iter(columns), ""))
    return _suiting(columns.values(), found) if found else None


def _of_family(columns: Mapping[str, Values], one: Family, alike: Collection[str]) -> dict[str, Unit]:
    groups: dict[object, dict[str, Values]] = {}
    for name, values in columns.items():
        groups.setdefault(_ALIKE if name in alike else quantity(name), {})[name] = values
    middles = [middle for group in groups.values() if (middle := _middle(group.values()))]
    shared = _unit(statistics.median(middles or [0.0]), one)
    return {name: _of_group(group.values(), one, shared) for group in groups.values() for name in group}


def _of_group(group: Iterable[Values], one: Family, shared: Unit) -> Unit:
    """The shared unit, so that columns compare at a glance, unless numbers would be tiny or huge in it."""
    group = list(group)
    middle = _middle(group)
    fits = not middle or (middle / shared.size >= _SMALL and _largest(group) / shared.size < _LARGE)
    return shared if fits or one is SHARES else _suiting(group, one)


def _suiting(group: Iterable[Values], one: Family) -> Unit:
    """The unit of the larger columns' medians, or a larger one if a number needs it."""
    group = list(group)
    unit, largest = _unit(_middle(group), one), _largest(group)
    larger = one.units[one.units.index(unit) :]
    return next((unit for unit in larger if largest / unit.size < _LARGE), larger[-1])


def _middle(group: Iterable[Values]) -> float:
    """The largest of the columns' median magnitudes, of numbers other than 0; 0 where there are none."""
    return max((statistics.median(sizes) for sizes in map(_sizes, group) if sizes), default=0.0)


def _largest(group: Iterable[Values]) -> float:
    return max((max(sizes) for sizes in map(_sizes, group) if sizes), default=0.0)


def _sizes(values: Values) -> list[float]:
    return [abs(float(value)) for value in values if is_number(value) and value]


def _unit(middle: float, one: Family) -> Unit:
    return next((unit for unit in reversed(one.units) if middle >= unit.size), one.units[0])
