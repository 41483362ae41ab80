"""How a column is shown to people: heading, unit and number format, all told by the column's name.

``*_ns`` durations, ``bytes``/``*_bytes`` sizes, ``*_bytes_per_s`` rates, ``ratio``/``*_ratio`` shares. One unit a
column, chosen by median magnitude and named in the heading, so that cells compare at a glance.
"""

from __future__ import annotations

import math
import numbers
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

MISSING: Final = "-"

Unit = tuple[str, float]
_TIMES: Final[tuple[Unit, ...]] = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))
TIME_UNITS: Final[dict[str, Unit]] = {"ns": _TIMES[0], "us": _TIMES[1], "ms": _TIMES[2], "s": _TIMES[3]}
_SIZES: Final[tuple[Unit, ...]] = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40))
_RATES: Final[tuple[Unit, ...]] = tuple((f"{name}/s", size) for name, size in _SIZES)
_SHARES: Final[tuple[Unit, ...]] = (("%", 0.01),)
_FAMILIES: Final = (("bytes_per_s", _RATES), ("ratio", _SHARES), ("bytes", _SIZES), ("ns", _TIMES))
_SMALL, _LARGE = 0.1, 10_000.0  # a median outside of these reads badly with three decimals
_DEPTH: Final = "depth"
_BARE: Final = {"bytes_per_s": "Bandwidth", "ratio": "Share", "bytes": "Size", "ns": "Time"}
_UPPER: Final = {word: word.upper() for word in ("cpu", "gpu", "npu", "id", "pid", "tid")}
_WORDS: Final = _UPPER | {"dur": "duration", "flops": "FLOPs"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column ready for people: one text a row. ``shares`` is set where cells are shares of a whole (1 is all)."""

    name: str
    label: str
    numeric: bool
    cells: tuple[str, ...]
    shares: tuple[float | None, ...] | None = None


def columns(table: pd.DataFrame, first: int | None = None, unit: str | None = None, indent: str = "  ") -> list[Column]:
    """The columns of a table that hold at least one value, formatted. An empty table keeps its columns.

    Units suit the ``first`` rows (None: all), which are what people look at; ``unit`` sets that of all times. In a tree
    (a table with a column ``depth``) the names are indented instead of showing the depth.
    """
    shown = _formatted(table, first, unit)
    return _indented(table, shown, indent) if _DEPTH in table.columns else shown


def _indented(table: pd.DataFrame, shown: list[Column], indent: str) -> list[Column]:
    names = [column for column in shown if column.name == "name"]
    others = [column for column in shown if column.name not in (_DEPTH, "name")]
    depths = [int(depth) for depth in table[_DEPTH]]
    return [
        replace(column, cells=tuple(indent * d + cell for d, cell in zip(depths, column.cells, strict=True)))
        for column in names
    ] + others


def _formatted(table: pd.DataFrame, first: int | None, unit: str | None) -> list[Column]:
    known = {str(name): _values(table[name]) for name in table.columns}
    looked_at = {name: values[:first] for name, values in known.items()}
    shared = {suffix: _shared_unit(looked_at, suffix, units) for suffix, units in _FAMILIES}
    return [
        _column(name, values, looked_at[name], shared, unit)
        for name, values in known.items()
        if not (values and _nothing(values))
    ]


def unknown(table: pd.DataFrame) -> list[str]:
    """Headings of the columns of which no cell is known."""
    names = (_in_words(str(name)) for name in table.columns if len(table) and table[name].isna().all())
    return list(dict.fromkeys(names))


def _in_words(name: str) -> str:
    """A heading that stands without its unit: ``Self CPU`` is a time, ``Self CPU memory`` is none."""
    return f"{label(name)} memory" if name.endswith("_bytes") else label(name)


def label(name: str) -> str:
    """Heading of a column without its unit: ``self_cpu_ns`` → ``Self CPU``."""
    suffix = _family(name)[0]
    stem = name.removesuffix(suffix).rstrip("_") if suffix else name
    if not stem:
        return _BARE[suffix]
    text = " ".join(_WORDS.get(word, word) for word in stem.split("_"))
    return text[:1].upper() + text[1:]


def common_unit(table: pd.DataFrame, names: Sequence[str]) -> Unit:
    """(name, size) of one unit for several columns of a table; ("", 1) where they have none."""
    known = {name: _values(table[name]) for name in names}
    suffix, units = _family(names[0])
    return _shared_unit(known, suffix, units) if units else ("", 1.0)


def _values(values: pd.Series) -> list[Any]:
    missing = values.isna().to_list()
    return [None if null else value for value, null in zip(values.to_list(), missing, strict=True)]


def _nothing(values: Sequence[Any]) -> bool:
    return all(value is None for value in values)


def _column(
    name: str, values: Sequence[Any], looked_at: Sequence[Any], shared: Mapping[str, Unit], fixed: str | None
) -> Column:
    if not values or not all(value is None or _is_number(value) for value in values):
        return Column(name, label(name), False, tuple(_text(value) for value in values))
    suffix, units = _family(name)
    if units is None:
        return Column(name, label(name), True, tuple(_each(values, _plain)))
    unit, size = TIME_UNITS[fixed] if fixed and units is _TIMES else _own_unit(looked_at, units, shared[suffix])
    cells = tuple(_each(values, lambda value: _scaled(value, size)))
    shares = _shares(values) if suffix == "ratio" and "change" not in name else None
    return Column(name, f"{label(name)} ({unit})", True, cells, shares)


def _shares(values: Sequence[Any]) -> tuple[float | None, ...] | None:
    """Shares of a whole; None where a number cannot be one."""
    if any(value is not None and value < 0 for value in values):
        return None
    return tuple(None if value is None else float(value) for value in values)


def _family(name: str) -> tuple[str, tuple[Unit, ...] | None]:
    for suffix, units in _FAMILIES:
        if name == suffix or name.endswith("_" + suffix):
            return suffix, units
    return "", None


def _shared_unit(known: Mapping[str, Sequence[Any]], suffix: str, units: tuple[Unit, ...]) -> Unit:
    """What suits the columns of a family together: the unit of the median column."""
    middles = [_middle(values) for name, values in known.items() if _family(name)[0] == suffix]
    return _unit(statistics.median([middle for middle in middles if middle] or [0.0]), units)


def _own_unit(values: Sequence[Any], units: tuple[Unit, ...], shared: Unit) -> Unit:
    """The shared unit, so that columns compare at a glance, unless a column's numbers would be tiny or huge in it."""
    middle = _middle(values)
    return shared if not middle or _SMALL <= middle / shared[1] < _LARGE else _unit(middle, units)


def _middle(values: Sequence[Any]) -> float:
    """Median magnitude of the numbers other than 0; 0 where there are none."""
    sizes = [abs(float(value)) for value in values if _is_number(value) and value]
    return statistics.median(sizes) if sizes else 0.0


def _unit(middle: float, units: tuple[Unit, ...]) -> Unit:
    return next((unit for unit in reversed(units) if middle >= unit[1]), units[0])


def _each(values: Sequence[Any], show: Callable[[Any], str]) -> list[str]:
    return [MISSING if value is None else show(value) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _scaled(value: Any, size: float) -> str:
    if not value:
        return "0"
    number = float(value) / size
    if size == 1.0 and float(value).is_integer():
        return str(int(value))
    digits = 2 if size == 0.01 else 3  # shares to a hundredth of a percent
    shown = f"{number:.{digits}f}"
    return f"{number:.1g}" if not float(shown) else shown


def _plain(value: Any) -> str:
    if not math.isfinite(value):
        return str(value)
    if float(value).is_integer():
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _text(value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return visible(str(value))


def visible(text: str) -> str:
    """Control, bidirectional and line-separating characters written out: a name must not steer a terminal or a page."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
