"""How is one cell written for people? Numbers in the unit of their column, text that cannot steer what shows it."""

from __future__ import annotations

import math
from typing import Any, Final

from perfkit_core.language import say
from perfkit_core.language.columns import worded
from perfkit_core.renderers.families import Unit
from perfkit_core.table_columns import Column

MISSING: Final = "-"
_DECIMALS: Final = 3
_SIGNIFICANT: Final = 3


def number(value: Any, unit: Unit | None) -> str:
    """Three decimals, or for small numbers three digits; what the unit cannot show is ``<0.01``, never 0."""
    if value is None:
        return MISSING
    if unit is None:
        return _plain(value)
    if not value:
        return "0"
    if unit.size == 1.0 and float(value).is_integer():
        return str(int(value))
    scaled = float(value) / unit.size
    shown = f"{scaled:.{_decimals(scaled, unit)}f}"
    return shown if float(shown) else _below(unit, negative=scaled < 0)


def _decimals(scaled: float, unit: Unit) -> int:
    small = 0 < abs(scaled) < 0.1
    wanted = _SIGNIFICANT - 1 - math.floor(math.log10(abs(scaled))) if small else _DECIMALS
    return min(wanted, unit.decimals)


def _below(unit: Unit, negative: bool) -> str:
    least = f"{10.0**-unit.decimals:.{unit.decimals}f}"
    return f">-{least}" if negative else f"<{least}"


def _plain(value: Any) -> str:
    if not math.isfinite(value):
        return str(value)
    if float(value).is_integer():
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def text(value: Any, column: Column | None = None) -> str:
    """A cell that is no number. The words that a column is made of are said, names are as they are."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return say("yes") if value else say("no")
    return visible(worded(str(value), column))


def visible(text: str) -> str:
    """Control, bidirectional and line-separating characters written out: a name must not steer a terminal or a page."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
