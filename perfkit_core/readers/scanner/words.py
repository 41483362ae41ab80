"""Words of eight bytes: the first special byte of one, its digits, hashes and comparisons.

Compiled code of the scanner takes addresses and records instead of arrays: an array is handed on by value, with its
shape and strides, and 40 of them cost more than the scan. Every buffer that is scanned ends with :data:`PAD` zero
bytes. A zero byte ends every token, so no loop needs a bound, and a load that begins inside the buffer ends inside the
pad.

Decimal text to integer nanoseconds in a padded buffer, to the nearest, halves to the even one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from perfkit_core.runtime.addresses import by_address, byte, inlined, load8

PAD: Final = 16

_ZEROS: Final = np.uint64(0x3030303030303030)
_ABOVE_NINE: Final = np.uint64(0x7676767676767676)
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
SPACES: Final = np.uint64(0x2020202020202020)
_QUOTES: Final = np.uint64(0x2222222222222222)
_BACKSLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
SEED: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT: Final = np.uint64(32)
_BYTE_PAIRS: Final = np.uint64(0x000000FF000000FF)
_EIGHT: Final = np.uint64(8)
_ONE: Final = np.uint64(1)


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Number of zero bits below the lowest set bit of a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], cgutils.true_bit)

    return types.int64(types.uint64), generate


@inlined
def special(word):  # type: ignore[no-untyped-def]
    """Marks bytes that are no plain text: quote, backslash, control, not ASCII. The lowest mark is always right."""
    quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - SPACES) & ~word) | word
    return found & _HIGHS


@inlined
def mixed(state, word):  # type: ignore[no-untyped-def]
    """A hash with one more word in it."""
    state = (state ^ word) * _FACTOR
    return state ^ (state >> _SHIFT)


@inlined
def leading_digits(word):  # type: ignore[no-untyped-def]
    """(count, value) of the decimal digits that a word begins with: eight bytes of text at once."""
    found = word ^ _ZEROS
    beyond = ((found + _ABOVE_NINE) | found) & _HIGHS  # the lowest mark is always right
    count = np.int64(8) if beyond == 0 else trailing_zeros(beyond) >> 3
    if count == 0:
        return count, np.int64(0)
    found <<= np.uint64(8 * (8 - count))  # zeros in front
    found = (found * np.uint64(10)) + (found >> _EIGHT)
    high = (found & _BYTE_PAIRS) * np.uint64(0x000F424000000064)
    low = ((found >> np.uint64(16)) & _BYTE_PAIRS) * np.uint64(0x0000271000000001)
    return count, np.int64((high + low) >> _SHIFT)


@inlined
def power_of_ten(count):  # type: ignore[no-untyped-def]
    """10 to a power from 0 to 8."""
    found = np.int64(10) if count & 1 else np.int64(1)
    found *= np.int64(100) if count & 2 else np.int64(1)
    found *= np.int64(10_000) if count & 4 else np.int64(1)
    return found * 100_000_000 if count & 8 else found


@inlined
def first_bytes(word, count):  # type: ignore[no-untyped-def]
    """The first ``count`` (less than 8) bytes of a word, the rest 0."""
    return word & ((_ONE << (np.uint64(count) * _EIGHT)) - _ONE)


@by_address
def hashed(buffer, start, end):  # type: ignore[no-untyped-def]
    """Hash of a slice: equal to what is mixed while a string is scanned."""
    state, at = SEED, start
    while at + 8 <= end:
        state = mixed(state, load8(buffer, at))
        at += 8
    return mixed(state, first_bytes(load8(buffer, at), end - at)) if at < end else state


@inlined
def equal(a, a_start, b, b_start, count):  # type: ignore[no-untyped-def]
    """Whether two slices of padded buffers hold the same bytes."""
    at = 0
    while at + 8 <= count:
        if load8(a, a_start + at) != load8(b, b_start + at):
            return False
        at += 8
    rest = count - at
    if rest == 0:
        return True
    return first_bytes(load8(a, a_start + at), rest) == first_bytes(load8(b, b_start + at), rest)


_POINT, _MINUS, _ZERO, _NINE = 0x2E, 0x2D, 0x30, 0x39
_WHOLE_DIGITS: Final = 16
_MOST: Final = 9 * 10**15
"""More microseconds do not fit 64 bits of nanoseconds for certain."""


@inlined
def microseconds(buffer, at):  # type: ignore[no-untyped-def]
    """(end, nanoseconds) of a JSON number of microseconds without exponent; end -1: ask the reference."""
    negative = byte(buffer, at) == _MINUS
    at += negative
    first, total, count = at, np.int64(0), np.int64(8)
    while count == 8 and at - first <= _WHOLE_DIGITS:
        count, more = leading_digits(load8(buffer, at))
        total = total * power_of_ten(count) + more
        at += count
    digits = at - first
    if digits == 0 or (digits > 1 and byte(buffer, first) == _ZERO) or digits > _WHOLE_DIGITS or total > _MOST:
        return -1, total
    at, total = decimals(buffer, at, total)
    if at < 0 or byte(buffer, at) == 0x65 or byte(buffer, at) == 0x45:
        return -1, total
    return at, -total if negative else total


@inlined
def decimals(buffer, at, total):  # type: ignore[no-untyped-def]
    """(end, nanoseconds) of ``total`` microseconds and the decimals at ``at``, if there are any."""
    if byte(buffer, at) != _POINT:
        return at, total * 1000
    at += 1
    first, beyond = at, 0  # beyond: what follows the third decimal is 0 none, 1 less than half, 2 half, 3 more
    while _ZERO <= byte(buffer, at) <= _NINE:
        digit = np.int64(byte(buffer, at) - _ZERO)
        if at - first < 3:
            total = total * 10 + digit
        elif at - first == 3:
            beyond = 3 if digit > 5 else 2 if digit == 5 else 1 if digit else 0
        elif digit:
            beyond = 3 if beyond >= 2 else 1
        at += 1
    if at == first:
        return -1, total
    for _ in range(at - first, 3):
        total *= 10
    return at, total + (beyond == 3 or (beyond == 2 and total % 2 == 1))
