"""Which units may a column be shown in? Told by the end of its name.

``*_ns`` durations, ``bytes``/``*_bytes`` sizes, ``*_bytes_per_s`` rates, ``ratio``/``*_ratio`` shares;
``flops``/``*_flops`` operations; ``*_tflop_per_s`` and ``*_gb_per_s`` are peaks of devices.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Unit(NamedTuple):
    """What is written behind a number, the size of one, and the most decimals that tell anything."""

    name: str
    size: float
    decimals: int


class Family(NamedTuple):
    """Columns whose names end in ``suffix``, their units from small to large, and the heading of the bare suffix."""

    suffix: str
    units: tuple[Unit, ...]
    bare: str


_SCALES: Final = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40))
TIMES: Final = Family("ns", (Unit("ns", 1.0, 3), Unit("µs", 1e3, 3), Unit("ms", 1e6, 6), Unit("s", 1e9, 9)), "Time")
SIZES: Final = Family("bytes", tuple(Unit(name, size, 3) for name, size in _SCALES), "Size")
RATES: Final = Family("bytes_per_s", tuple(Unit(f"{name}/s", size, 3) for name, size in _SCALES), "Bandwidth")
SHARES: Final = Family("ratio", (Unit("%", 0.01, 2),), "Share")
_FLOP: Final = (("FLOP", 1.0), ("kFLOP", 1e3), ("MFLOP", 1e6), ("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15))
OPERATIONS: Final = Family("flops", tuple(Unit(name, size, 3) for name, size in _FLOP), "FLOPs")
PEAKS: Final = (
    Family("tflop_per_s", (Unit("TFLOP/s", 1.0, 1),), "Operations"),
    Family("gb_per_s", (Unit("GB/s", 1.0, 1),), "Bandwidth"),
)
"""Decimal, as data sheets of devices have them."""
FAMILIES: Final = (RATES, SHARES, SIZES, TIMES, OPERATIONS, *PEAKS)
TIME_UNITS: Final[dict[str, Unit]] = dict(zip(("ns", "us", "ms", "s"), TIMES.units, strict=True))

_STATISTICS: Final = frozenset(
    ("total", "self", "avg", "mean", "median", "min", "max", "base", "other", "difference", "before", "now", "dur",
     "low", "high", "noise")
)  # fmt: skip
"""Words that do not change what is measured, only which number of it is told."""
_PARTS: Final = frozenset(("count_effect", "per_call_effect", "time_so_far"))
"""The same of several words: what a difference is made of, and where it has led to."""


def family(name: str) -> Family | None:
    """The family of a column, None for plain numbers and text."""
    return next((one for one in FAMILIES if name == one.suffix or name.endswith(f"_{one.suffix}")), None)


def stem(name: str) -> str:
    """A column's name without the suffix of its family: ``self_cpu_ns`` → ``self_cpu``."""
    found = family(name)
    return name.removesuffix(found.suffix).rstrip("_") if found else name


def quantity(name: str) -> tuple[str, str]:
    """What a column measures, the same for all its statistics: ``min_cpu_ns`` and ``total_cpu_ns`` → ("ns", "cpu")."""
    found = family(name)
    told = stem(name)
    words = () if told in _PARTS else (word for word in told.split("_") if word not in _STATISTICS)
    return found.suffix if found else "", "_".join(words)
