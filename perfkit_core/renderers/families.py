"""The units that the columns of one unit are shown in, from small to large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """What is written behind a number, the size of one, and the most decimals that tell anything."""

    name: str
    size: float
    decimals: int


_SCALES: Final = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40))
_FLOP: Final = (("FLOP", 1.0), ("kFLOP", 1e3), ("MFLOP", 1e6), ("GFLOP", 1e9), ("TFLOP", 1e12), ("PFLOP", 1e15))
UNITS: Final[Mapping[str, tuple[Unit, ...]]] = {
    "ns": (Unit("ns", 1.0, 3), Unit("µs", 1e3, 3), Unit("ms", 1e6, 6), Unit("s", 1e9, 9)),
    "bytes": tuple(Unit(name, size, 3) for name, size in _SCALES),
    "bytes_per_s": tuple(Unit(f"{name}/s", size, 3) for name, size in _SCALES),
    "ratio": (Unit("%", 0.01, 2),),
    "flops": tuple(Unit(name, size, 3) for name, size in _FLOP),
    # decimal, as data sheets of devices have them
    "tflop_per_s": (Unit("TFLOP/s", 1.0, 1),),
    "gb_per_s": (Unit("GB/s", 1.0, 1),),
}
"""Unit of a column → those that people see. Others are shown as they are."""
TIME_UNITS: Final[dict[str, Unit]] = dict(zip(("ns", "us", "ms", "s"), UNITS["ns"], strict=True))
