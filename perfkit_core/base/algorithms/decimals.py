"""Exact conversion of decimal text to integer ns. Via float64, times in µs since 1970 would be off by up to 253 ns."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import BLOCK, IntArray
from perfkit_core.errors import SourceError

_DIGITS = 3
_LONG = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_EVEN)


def to_ns(texts: Sequence[bytes | str | None], locate: Callable[[int], str] = lambda at: "") -> IntArray:
    """Convert decimal texts in µs, such as ``b"1419247332500.684"``, to integer ns, rounded half to even. Quotes
    around numbers are ignored. None becomes 0. Raises SourceError if a text is not a number or does not fit 64 bits;
    the error contains ``locate(index)``, the location of the text in the source."""
    try:
        return _integers(texts)
    except pa.ArrowInvalid:
        for wrong, text in enumerate(texts):
            try:
                _integers([text])
            except pa.ArrowInvalid:
                shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
                more = ", or leave such events out with --partial"
                raise _not_fitting(shown, locate(wrong), more) from None
        raise


def span_ns(start_ns: IntArray, dur_ns: IntArray) -> tuple[int, int]:
    """Return the first start and the last end of events, in ns, as Python integers. The end can exceed 64 bits."""
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
    for time_ns in times_ns:
        if not -(2**63) < time_ns < 2**63:
            raise _not_fitting(str(time_ns // 1000), "")


def _not_fitting(text: str, location: str, more: str = "") -> SourceError:
    return SourceError(
        f"a timestamp is not a 64-bit number of nanoseconds: {text[:40]!r}{location}",
        f"the file is damaged, or was not written by a profiler: record it again{more}",
    )


def _integers(texts: Sequence[bytes | str | None]) -> IntArray:
    strings = pc.utf8_trim(pc.fill_null(pa.array(texts).cast(pa.string()), "0"), ' "')
    ns = pa.decimal128(38, _DIGITS)
    # Arrow reads outside of its tables for exponents such as e-78320561, and may crash.
    if pc.any(pc.match_substring(strings, "e", ignore_case=True)).as_py():
        numbers = pa.array([_rounded(text) for text in strings.to_pylist()], ns)
    else:
        numbers = _cast(strings, ns)
    # Each decimal consists of two 64-bit words. If the number fits 64 bits, the high word only repeats the sign.
    words = np.frombuffer(numbers.buffers()[1], np.int64)[2 * numbers.offset :][: 2 * len(numbers)]
    low, high = words[::2], words[1::2]
    if not np.array_equal(low >> 63, high):
        raise pa.ArrowInvalid("larger than 64 bits of nanoseconds")
    return low.copy()


def _cast(strings: pa.Array, ns: pa.DataType) -> pa.Array:
    try:
        return strings.cast(ns)
    except pa.ArrowInvalid:  # a text has digits below 1 ns, or is not a number
        try:
            finer = strings.cast(pa.decimal128(38, _DIGITS + 9))
            return pc.round(finer, _DIGITS).cast(ns, safe=False)
        except pa.ArrowInvalid:  # a text is a float printed with all its digits, such as 2.7700000209733844
            return pa.array([_rounded(text) for text in strings.to_pylist()], ns)


def _rounded(text: str) -> decimal.Decimal:
    try:
        return _LONG.create_decimal(text).quantize(decimal.Decimal(1).scaleb(-_DIGITS), context=_LONG)
    except ArithmeticError:
        raise pa.ArrowInvalid(repr(text[:40])) from None
