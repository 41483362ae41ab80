"""In which unit is each column shown? One for all statistics of a quantity, and where it reads well for the table.

What compares (total, average, minimum, maximum; base, other, difference and its parts; the columns of several runs) has
the same unit, chosen by the larger of them: see :func:`~perfkit_core.language.units.column_units`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from perfkit_core.language.units import Values, column_units, group_unit
from perfkit_core.renderers.families import FAMILIES, TIME_UNITS, TIMES, Unit, family, quantity

_ALIKE: Final = object()
"""Of columns that are called by names of their own, the quantity."""


def scales(columns: Mapping[str, Values], fixed: str | None = None, alike: Collection[str] = ()) -> dict[str, Unit]:
    """Return the unit of each column of a family (name → cells); ``fixed`` ("ns", "us", "ms", "s") is that of all
    times. ``alike``: columns that hold the same quantity of several things, whatever they are called."""
    units: dict[str, Unit] = {}
    for kind in FAMILIES:
        names = [name for name in columns if family(name) is kind]
        if kind is TIMES and fixed:
            units |= dict.fromkeys(names, TIME_UNITS[fixed])
            continue
        groups: dict[object, list[str]] = {}
        for name in names:
            groups.setdefault(_ALIKE if name in alike else quantity(name), []).append(name)
        chosen = column_units([[columns[name] for name in group] for group in groups.values()], kind)
        for group, of_group in zip(groups.values(), chosen, strict=True):
            units |= zip(group, of_group, strict=True)
    return units


def common_unit(columns: Mapping[str, Values]) -> Unit | None:
    """Return one unit for several columns, that of the tallest; None where they have none."""
    kind = family(next(iter(columns), ""))
    return group_unit(columns.values(), kind) if kind else None
