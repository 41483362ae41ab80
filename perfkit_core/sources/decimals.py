"""Decimal text to integer nanoseconds, exactly. Floats would lose up to 253 ns of an epoch time in µs."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.errors import SourceError
from perfkit_core.trace import IntArray

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
        raise SourceError(
            f"a time stamp is not a number that fits 64 bits of nanoseconds: {shown[:40]!r}{place(wrong)}",
            "the file is damaged, or no profiler wrote it: record it again",
        ) from None


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
