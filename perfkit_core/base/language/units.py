"""Formatting and parsing of durations, sizes, rates, shares and counts for people. Machine formats keep base units.

- In a sentence, each number has a suitable unit and three significant digits: ``82.0 µs``, ``1.69 s``, ``64.0 MiB``.
  Integer counts and integer percentages have no decimals: ``1,240``, ``5%``.
- A column of a table has one unit and one number of decimals, so that its numbers align (:class:`ColumnFormat`).
- A nonzero number that would be rounded to 0 is shown as a bound: ``<0.01%``.
- Sizes are binary (1 KiB is 1024 bytes). FLOPs and the peak rates of devices are decimal (1 GB/s is 10⁹ bytes/s)."""

from __future__ import annotations

import math
import numbers
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from perfkit_core.errors import UsageError

DIGITS: Final = 3
DECIMALS: Final = 3
_SMALL: Final = 0.1
_LARGE: Final = 10_000.0
"""A unit suits a column if, in this unit, the median is at least ``_SMALL`` and the maximum is below ``_LARGE``."""
_LOST: Final = 0.01
"""A column gets its own unit if its numbers are too small in the unit of its group: the median is below ``_LOST``, and
the maximum is below 1."""
_MAX_PLAIN_DECIMALS: Final = 6

Values = Sequence[Any]


class Unit(NamedTuple):
    """A unit of a quantity, for example ms."""

    name: str
    size: float  # size in the base unit, which for times is ns
    decimals: int  # maximum number of decimals; 0 for ns, B and FLOP, which are recorded as integers


class Family(NamedTuple):
    """The units of one quantity."""

    suffix: str  # suffix of the names of columns in the base unit, for example ``ns``
    units: tuple[Unit, ...]  # units in ascending order


_BINARY: Final = (("B", 2**0, 0), ("KiB", 2**10, 3), ("MiB", 2**20, 6), ("GiB", 2**30, 9), ("TiB", 2**40, 12))
_FLOP: Final = (("FLOP", 0), ("kFLOP", 3), ("MFLOP", 6), ("GFLOP", 9), ("TFLOP", 12), ("PFLOP", 15))
TIMES: Final = Family("ns", (Unit("ns", 1.0, 0), Unit("µs", 1e3, 3), Unit("ms", 1e6, 6), Unit("s", 1e9, 9)))
SIZES: Final = Family("bytes", tuple(Unit(name, float(size), most) for name, size, most in _BINARY))
RATES: Final = Family("bytes_per_s", tuple(Unit(f"{unit.name}/s", *unit[1:]) for unit in SIZES.units))
SHARES: Final = Family("ratio", (Unit("%", 0.01, 2),))
OPERATIONS: Final = Family("flops", tuple(Unit(name, 10.0**power, power) for name, power in _FLOP))
PEAKS: Final = (
    Family("tflop_per_s", (Unit("GFLOP/s", 1e-3, 1), Unit("TFLOP/s", 1.0, 1))),
    Family("gb_per_s", (Unit("GB/s", 1.0, 1), Unit("TB/s", 1e3, 2))),
)
"""Achieved rates and peak rates of devices, in the decimal units of data sheets."""
FAMILIES: Final = (RATES, SHARES, SIZES, TIMES, OPERATIONS, *PEAKS)
TIME_UNITS: Final[dict[str, Unit]] = dict(zip(("ns", "us", "ms", "s"), TIMES.units, strict=True))

_THOUSANDS: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_DECIMAL_SIZES: Final = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_ALIASES: Final[Mapping[str, Mapping[str, float]]] = {
    TIMES.suffix: {"us": 1e3},
    SIZES.suffix: _DECIMAL_SIZES,
    RATES.suffix: {f"{name}/s": size for name, size in _DECIMAL_SIZES.items()},
    OPERATIONS.suffix: _THOUSANDS,
}
_EXAMPLES: Final = {
    TIMES.suffix: ("a duration", "20 ms"),
    SIZES.suffix: ("a size", "64 MiB"),
    RATES.suffix: ("a rate", "2 GiB/s"),
    SHARES.suffix: ("a share", "5%"),
    OPERATIONS.suffix: ("a number of operations", "4 GFLOP"),
    **{peak.suffix: ("a rate", f"100 {peak.units[0].name}") for peak in PEAKS},
    "": ("a number", "1.5 M"),
}
_QUANTITY: Final = re.compile(r"(?P<number>[+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s]*)")


def family(unit: str) -> Family | None:
    """Return the family of units of the declared unit of a column, or None for plain numbers and text."""
    return next((candidate for candidate in FAMILIES if candidate.suffix == unit), None)


def format_count(count: float) -> str:
    """Return a count as text. Integers have all digits (``1,240``). Other numbers have at most three (``2.5``)."""
    if not math.isfinite(count):
        return str(count)
    if float(count).is_integer():
        return _fixed(count, 0)
    return _without_zeros(_fixed(count, min(_decimals(count), _MAX_PLAIN_DECIMALS)))


def counted(count: int, noun: str) -> str:
    """Return a count with an English noun, for texts that are not translated: ``1 step``, ``1,240 events``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_quantity(value: float, family: Family, signed: bool = False) -> str:
    """Return a number as text with three significant digits and a suitable unit of its family: ``12.3 ms``,
    ``64.0 MiB``, ``5%``, ``<0.01%``. If ``signed`` is set, positive values have a plus sign."""
    unit = unit_of(value, family)
    return f"{'+' if signed and value > 0 else ''}{with_unit(format_in(value, unit), unit)}"


format_duration: Final = partial(format_quantity, family=TIMES)
format_bytes: Final = partial(format_quantity, family=SIZES)
format_ratio: Final = partial(format_quantity, family=SHARES)


def format_in(value: float, unit: Unit | None) -> str:
    """Return a number in a unit as text with three significant digits. The text does not contain the unit's name."""
    if unit is None:
        return format_count(value)
    if not math.isfinite(value):
        return str(value)
    scaled = value / unit.size
    if unit in SHARES.units and abs(scaled) >= 1 and round(scaled, 9).is_integer():  # 0.07 / 0.01 is 7.000000000000001
        return _fixed(scaled, 0)
    return _fixed(scaled, min(_decimals(scaled), unit.decimals))


def format_range(low: float, high: float, family: Family) -> str:
    """Return a range as text in the unit of its larger end: ``0.1–2 ms``. If both ends have the same text, return a
    single number. Trailing zeros are dropped, because the ends are estimates."""
    unit = unit_of(max(abs(low), abs(high)), family)
    ends = [format_in(end, unit) for end in (low, high)]
    if ends[0] == ends[1]:
        return with_unit(ends[0], unit)
    dash = " … " if min(low, high) < 0 else "–"  # a dash before a minus sign would be confusing
    return with_unit(dash.join(map(_without_zeros, ends)), unit)


def with_unit(number: str, unit: Unit | None) -> str:
    return f"{number} {unit.name}".replace(" %", "%") if unit else number


def unit_of(value: float, family: Family) -> Unit:
    """Return the largest unit in which a number is at least 1 after rounding for display."""
    unit = family.units[0]
    for larger in family.units[1:]:
        # 999.5 µs and 1,023.5 KiB get the larger unit, because they would be rounded to 1,000 µs and 1,024 KiB.
        if math.isfinite(value) and abs(value) >= larger.size - unit.size / 2:
            unit = larger
    return unit


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The format of all numbers of a column."""

    unit: Unit | None  # None for plain numbers
    decimals: int
    separated: bool = True  # whether thousands are separated; False for ids such as stream numbers

    def text(self, value: float) -> str:
        if not math.isfinite(value):
            return str(value)
        text = _fixed(value / (self.unit.size if self.unit else 1.0), self.decimals)
        return text if self.separated else text.replace(",", "")


def column_format(
    column: Iterable[Any], unit: Unit | None, most: int = DECIMALS, separated: bool = True
) -> ColumnFormat:
    """Return the format of a column in a unit. It has just enough decimals that three quarters of the numbers
    show at least three digits. With a unit, it has at most ``most`` decimals. Integers without a unit have none."""
    sizes = sorted(magnitudes(column))
    if not sizes or (unit is None and all(size.is_integer() for size in sizes)):
        return ColumnFormat(unit, 0, separated)
    quarter = sizes[len(sizes) // 4]
    if unit is None:
        return ColumnFormat(None, min(_decimals(quarter), _MAX_PLAIN_DECIMALS), separated)
    return ColumnFormat(unit, min(_decimals(quarter / unit.size), unit.decimals, most), separated)


def column_units(groups: Sequence[Sequence[Values]], family: Family) -> list[list[Unit]]:
    """Return a unit for each column of each group. All columns belong to one table and to one family of units.

    - A group contains columns that people compare, such as base, other and difference.
    - Groups share one unit, except a group whose numbers are too small or too large in the shared unit.
    - The columns of a group share the group's unit, except a column whose numbers are too small in it (``_LOST``)."""
    middles = [middle for group in groups if (middle := _largest(group, statistics.median))]
    shared = _largest_within(statistics.median(middles or [0.0]), family)
    units = []
    for group in groups:
        middle = _largest(group, statistics.median)
        suits = not middle or (middle / shared.size >= _SMALL and _largest(group) / shared.size < _LARGE)
        unit = shared if suits or family is SHARES else group_unit(group, family)
        of_group = []
        for column in group:
            sizes = magnitudes(column)
            lost = bool(sizes) and max(sizes) < unit.size and statistics.median(sizes) < _LOST * unit.size
            of_group.append(group_unit([column], family) if lost else unit)
        units.append(of_group)
    return units


def group_unit(group: Iterable[Values], family: Family) -> Unit:
    """Return one unit for columns that readers compare: the unit that suits the largest median. If a number would be
    ``_LARGE`` or more in this unit, return a larger one."""
    group = list(group)
    unit, largest = _largest_within(_largest(group, statistics.median), family), _largest(group)
    larger = family.units[family.units.index(unit) :]
    return next((unit for unit in larger if largest / unit.size < _LARGE), larger[-1])


def magnitudes(column: Iterable[Any]) -> list[float]:
    """Return the absolute values of the finite nonzero numbers of a column."""
    sizes = (abs(float(value)) for value in column if is_number(value))
    return [size for size in sizes if size and math.isfinite(size)]


def is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _largest(group: Iterable[Values], statistic: Callable[[list[float]], float] = max) -> float:
    return max((statistic(sizes) for sizes in map(magnitudes, group) if sizes), default=0.0)


def _largest_within(size: float, family: Family) -> Unit:
    return next((unit for unit in reversed(family.units) if size >= unit.size), family.units[0])


def parse_quantity(text: str, family: Family | None, needs_unit: bool = False) -> float:
    """Return the value of a text such as ``20 ms``, ``5%`` or ``1.5 M``, in the base unit of a family. If ``family`` is
    None, the text is a plain number. A number without a unit is in the base unit, and ``K``, ``M``, ``G`` and ``T``
    multiply the base unit by powers of 1000. Both are errors if ``needs_unit`` is set. Raises UsageError."""
    match, sizes = _QUANTITY.fullmatch(text.strip()), writable_units(family) | ({} if needs_unit else _THOUSANDS)
    if match is None or not (match["unit"] in sizes or (not match["unit"] and not needs_unit)):
        what, example = _EXAMPLES[family.suffix if family else ""]
        raise UsageError(f"{text!r} is not {what}", f"example: {example}; units: {', '.join(sizes)}")
    return float(match["number"].replace(",", "").replace("_", "")) * sizes.get(match["unit"], 1.0)


def writable_units(family: Family | None) -> dict[str, float]:
    if family is None:
        return dict(_THOUSANDS)
    return {unit.name: unit.size for unit in family.units} | dict(_ALIASES.get(family.suffix, {}))


def _fixed(scaled: float, decimals: int) -> str:
    """Return a number with ``decimals`` decimals. A nonzero number that rounds to 0 becomes ``<0.01`` or similar."""
    text = f"{scaled:,.{decimals}f}"
    if not scaled:
        return "0"
    if text.strip("-0.,"):
        return text
    least = f"{10.0**-decimals:.{decimals}f}"
    return f"<{least}" if scaled > 0 else f">-{least}"


def _decimals(scaled: float) -> int:
    """Return the number of decimals for three significant digits. It allows for rounding: 9.996 becomes 10.0."""
    return max(0, DIGITS - 1 - int(f"{scaled:.{DIGITS - 1}e}".partition("e")[2]))


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
