"""The best start times that Paddle's JSON allows.

Each event has its start twice: as whole µs since 1970 (``ts``, cut off), and as float32 µs since the first host event
(``start_time``). The second is exact to the ns in the first 8 ms and decays from there: 4 ns at 0.1 s, 30 ns at 1 s,
0.5 µs at 10 s. Together they are never off by more than 1 µs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.trace import IntArray

_PLAIN: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))? us", re.ASCII)
_FLOAT32_STEPS: Final = 2.0**-23
"""Relative error of a number that was rounded to float32, divided, and rounded again."""
_MICROSECOND_NS: Final = 1000


@dataclass(frozen=True, slots=True)
class Starts:
    """Start of each event in ns, the bound of its error, and whether a finer text was used, each of shape (events,)."""

    start_ns: IntArray
    error_ns: IntArray


def float_error(ns: IntArray) -> IntArray:
    """Bound of the error of a duration or offset of this size, written as float32 µs with three decimals."""
    return np.asarray(np.floor(ns * _FLOAT32_STEPS + 0.75), np.int64)


def offset(text: object) -> int | None:
    """A ``start_time`` in ns, to the nearest, halves to the even one; None for what is none."""
    match = _PLAIN.fullmatch(text) if isinstance(text, str) else None
    if not match:
        return None
    thousandths, beyond = divmod(int((match[2] or "").ljust(9, "0")), 10**6)
    up = beyond > 5 * 10**5 or (beyond == 5 * 10**5 and thousandths % 2 == 1)
    return int(match[1]) * _MICROSECOND_NS + thousandths + up


def refine(whole_us_ns: IntArray, offset_ns: IntArray) -> Starts:
    """Starts from whole µs (in ns) and the offsets from the first event; those that are negative are unknown."""
    told = offset_ns >= 0
    error = float_error(offset_ns)
    origin, doubt = _origin(whole_us_ns[told], offset_ns[told], error[told])
    last = _MICROSECOND_NS - 1
    start = np.where(told, np.clip(origin + offset_ns, whole_us_ns, whole_us_ns + last), whole_us_ns)
    return Starts(start, np.where(told, np.minimum(error + doubt, last), last))


def _origin(whole_us_ns: IntArray, offset: IntArray, error: IntArray) -> tuple[int, int]:
    """Time of offset 0, and how far it may be off: what all events together allow."""
    if not len(offset):
        return 0, 0
    low = int((whole_us_ns - offset - error).max())
    high = int((whole_us_ns + _MICROSECOND_NS - 1 - offset + error).min())
    return (low + high) // 2, max((high - low + 1) // 2, 0)
