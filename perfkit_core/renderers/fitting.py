"""What of a table fits a terminal? Which columns, and how wide the names in them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from perfkit_core.renderers.cells import visible
from perfkit_core.renderers.columns import ShownColumn

GAP: Final = "   "
_LONGEST: Final = 80
"""Cells of a text column where no terminal limits the width."""
_SHORTEST: Final = 24
"""Cells that a name is not cut below."""
_KEY: Final = 8
"""Text this short (a device, a direction) costs no more than a number and tells rows apart; longer text waits."""


def fitting(shown: Sequence[ShownColumn], width: int | None) -> tuple[list[ShownColumn], list[ShownColumn]]:
    """The columns that a terminal has room for with names at their shortest, two at least, and the rest.

    The first column and the first long text are what a row is about; other long text gives way to the numbers.
    """
    if width is None:
        return list(shown), []
    later = [column for column in shown if _is_long(column)][1:]
    wanted = [*(column for column in shown if column not in later), *later]
    needed = -len(GAP)
    names: set[str] = set()
    for column in wanted:
        size = full_width(column)
        needed += len(GAP) + (size if column.numeric else min(size, _SHORTEST))
        if needed > width and len(names) > 1:
            break
        names.add(column.name)
    return [c for c in shown if c.name in names], [c for c in shown if c.name not in names]


def name_width(shown: Sequence[ShownColumn], width: int | None) -> int:
    """Characters that a text column may take: all share what the numbers leave of the terminal's width."""
    if width is None:
        return _LONGEST
    names = sorted(full_width(column) for column in shown if not column.numeric)
    free = width - len(GAP) * (len(shown) - 1) - sum(full_width(column) for column in shown if column.numeric)
    for index, size in enumerate(names):  # short columns take what they need, the long ones share the rest
        share = free // (len(names) - index)
        if size > share:
            return max(_SHORTEST, share)
        free -= size
    return max(names, default=_LONGEST)


def full_width(column: ShownColumn) -> int:
    """Cells of a terminal that the column takes uncut, with its heading."""
    return max(map(cell_len, (visible(column.label), *column.cells)))


def _is_long(column: ShownColumn) -> bool:
    return not column.numeric and max(map(cell_len, column.cells), default=0) > _KEY
