"""Decimal text to integer nanoseconds, exactly. Floats would lose up to 253 ns of an epoch time in µs."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import BLOCK, IntArray
from perfkit_core.errors import SourceError

_DIGITS: Final = 3
"""From µs to ns."""
_LONG = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_EVEN)


def to_ns(texts: Sequence[bytes | str | None], place: Callable[[int], str] = lambda at: "") -> IntArray:
    """Numbers of µs as written (``b"1419247332500.684"``, also quoted) to ns; None is 0. Below 1 ns: to the nearest.

    Raises SourceError for text that is not a number or does not fit 64 bits; ``place`` says where the text with this
    index stands.
    """
    try:
        return _integers(texts)
    except pa.ArrowInvalid:
        wrong = next(at for at, text in enumerate(texts) if not _is_time(text))
        shown = texts[wrong]
        shown = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else str(shown)
        raise _not_fitting(shown, place(wrong), ", or leave such events out with --partial") from None


def span_ns(start_ns: IntArray, dur_ns: IntArray) -> tuple[int, int]:
    """First start and last end of events, of shape (events,) each, one at least; also where that end is no int64."""
    first, last = int(start_ns.min()), int(start_ns.max())
    for begin in range(0, len(start_ns), BLOCK):
        start, duration = start_ns[begin : begin + BLOCK], dur_ns[begin : begin + BLOCK]
        end = start + duration
        wrapped = np.flatnonzero((end < start) & (duration > 0))
        for at in wrapped[:1].tolist():
            return first, int(start[at]) + int(duration[at])
        last = max(last, int(end.max()))
    return first, last


def check_fits(times_ns: Iterable[int]) -> None:
    """Raises SourceError where a time does not fit 64 bits of nanoseconds."""
    for time_ns in times_ns:
        if not -(2**63) < time_ns < 2**63:
            raise _not_fitting(str(time_ns // 1000), "")


def _not_fitting(text: str, place: str, more: str = "") -> SourceError:
    return SourceError(
        f"a time stamp is not a number that fits 64 bits of nanoseconds: {text[:40]!r}{place}",
        f"the file is damaged, or no profiler wrote it: record it again{more}",
    )


def _is_time(text: bytes | str | None) -> bool:
    try:
        _integers([text])
    except pa.ArrowInvalid:
        return False
    return True


def _integers(texts: Sequence[bytes | str | None]) -> IntArray:
    strings = pc.utf8_trim(pc.fill_null(pa.array(texts).cast(pa.string()), "0"), ' "')
    return _unscaled(_parse(strings, _DIGITS))


def _parse(strings: pa.Array, scale: int) -> pa.Array:
    try:
        return strings.cast(pa.decimal128(38, scale))
    except pa.ArrowInvalid:  # digits below 1 ns, or not a number
        pass
    try:
        finer = strings.cast(pa.decimal128(38, scale + 9))
        return pc.round(finer, scale).cast(pa.decimal128(38, scale), safe=False)
    except pa.ArrowInvalid:  # floats printed with all their digits, as 2.7700000209733844
        return pa.array([_rounded(text, scale) for text in strings.to_pylist()], pa.decimal128(38, scale))


def _rounded(text: str, scale: int) -> decimal.Decimal:
    try:
        return _LONG.create_decimal(text).quantize(decimal.Decimal(1).scaleb(-scale), context=_LONG)
    except ArithmeticError:
        raise pa.ArrowInvalid(repr(text[:40])) from None


def _unscaled(numbers: pa.Array) -> IntArray:
    words = np.frombuffer(numbers.buffers()[1], np.int64)[2 * numbers.offset :][: 2 * len(numbers)]
    low, high = words[::2], words[1::2]
    if not np.array_equal(low >> 63, high):
        raise pa.ArrowInvalid("larger than 64 bits of nanoseconds")
    return low.copy()
