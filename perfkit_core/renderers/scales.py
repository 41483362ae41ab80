"""The unit of each column of a table: one for all statistics of a quantity, and one that reads well.

What compares (total, average, minimum, maximum; base, other, difference and its parts; the columns of several runs) has
the same unit, chosen by the larger of them, and nothing is shown in tens of thousands of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from perfkit_core.language.units import FAMILIES, TIME_UNITS, TIMES, Unit, Values, column_units, group_unit
from perfkit_core.table_columns import Column, quantity


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
        for column, cells in of_family:
            groups.setdefault(quantity(column), []).append((column, cells))
        chosen = column_units([[cells for _, cells in group] for group in groups.values()], family)
        for group, group_units in zip(groups.values(), chosen, strict=True):
            units |= {column.name: unit for (column, _), unit in zip(group, group_units, strict=True)}
    return units


def common_unit(column: Column, cells: Iterable[Values]) -> Unit | None:
    """Return one unit for several columns like this one, that of the tallest; None where it has none."""
    family = next((family for family in FAMILIES if family.suffix == column.unit), None)
    return group_unit(cells, family) if family else None
