"""Numbers with units, as people read them: three significant digits, and a unit that fits."""

from __future__ import annotations

import math
from typing import Final

_DURATIONS: Final = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
_SIZES: Final = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))


def format_duration(ns: float) -> str:
    """Return a duration such as ``12.3 ms``."""
    unit, size = next((one for one in _DURATIONS if abs(ns) >= one[1]), _DURATIONS[-1])
    return f"{_three_digits(ns / size)} {unit}"


def format_bytes(size: float) -> str:
    """Return a size such as ``1.50 MiB``."""
    unit, each = next((one for one in _SIZES if abs(size) >= one[1]), ("B", 1.0))
    return f"{size:.0f} B" if unit == "B" else f"{_three_digits(size / each)} {unit}"


def format_ratio(ratio: float) -> str:
    """Return a ratio in per cent, such as ``12.3%``."""
    return f"{_three_digits(100 * ratio)}%"


def format_count(count: float) -> str:
    """Return a number such as ``12,345`` or ``1.23``."""
    return f"{count:,.0f}" if float(count).is_integer() else _three_digits(count)


def _three_digits(value: float) -> str:
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
