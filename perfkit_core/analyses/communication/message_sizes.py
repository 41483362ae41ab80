"""Classes of message sizes: powers of two, as benchmarks of collectives use them."""

from __future__ import annotations

import pandas as pd

from perfkit_core.language.units import SIZES

_UNITS = tuple(unit.name for unit in SIZES.units)


def size_class(size: pd.Series[int]) -> pd.Series[str]:
    """``4 to 8 MiB`` holds sizes from 4 MiB (included) to 8 MiB (not); None where the size is unknown."""
    distinct = {value: _name(int(value)) for value in size.dropna().unique()}
    return size.map(distinct).astype(object).where(size.notna(), None)


def _name(size: int) -> str:
    if size < 1:
        return "0 B"
    exponent = size.bit_length() - 1
    unit = min(exponent // 10, len(_UNITS) - 1)
    low = 1 << (exponent - 10 * unit)
    high, unit_of_high = (1, unit + 1) if low == 512 and unit + 1 < len(_UNITS) else (2 * low, unit)
    if unit == unit_of_high:
        return f"{low} to {high} {_UNITS[unit]}"
    return f"{low} {_UNITS[unit]} to {high} {_UNITS[unit_of_high]}"
