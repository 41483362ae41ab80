"""JSON tokens in a padded buffer: their ends and values, and copies in the spelling of the reference.

Compiled code takes addresses and records instead of arrays, as arrays are passed by value with shape and strides, and
40 of them cost more than the scan. Every buffer ends with :data:`PAD` zero bytes. A zero byte ends every token, so no
loop needs a bound, and a load that begins inside the buffer ends inside the pad.

Positions are those of the next byte; -1 means that the text is not JSON and is left to the reference. ``odd`` marks
what may be JSON but is spelled differently by the reference: escapes, bytes that are not ASCII, long decimals, objects
with several members (which may repeat a name).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from perfkit_core.algorithms.addresses import by_address, byte, inlined, load8, put_byte, put_bytes

PAD: Final = 16

_QUOTE, _BACKSLASH, _COMMA, _COLON, _POINT, _MINUS, _ZERO, _NINE = 0x22, 0x5C, 0x2C, 0x3A, 0x2E, 0x2D, 0x30, 0x39
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = 0x5B, 0x5D, 0x7B, 0x7D

_ZEROS: Final = np.uint64(0x3030303030303030)
_ABOVE_NINE: Final = np.uint64(0x7676767676767676)
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
_SPACES: Final = np.uint64(0x2020202020202020)
_QUOTES: Final = np.uint64(0x2222222222222222)
_BACKSLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
_SEED: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT: Final = np.uint64(32)
_BYTE_PAIRS: Final = np.uint64(0x000000FF000000FF)
_EIGHT: Final = np.uint64(8)
_ONE: Final = np.uint64(1)


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(typing: Any, word: Any) -> Any:
    """Return the number of zero bits below the lowest set bit of a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], cgutils.true_bit)

    return types.int64(types.uint64), generate


@inlined
def special(word):  # type: ignore[no-untyped-def]
    """Mark bytes that are not plain text: quote, backslash, control, not ASCII. Only the lowest mark is reliable."""
    # (x - _ONES) & ~x sets the high bit of zero bytes, and by borrows also of bytes above them
    quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - _SPACES) & ~word) | word
    return found & _HIGHS


@inlined
def mixed(state, word):  # type: ignore[no-untyped-def]
    state = (state ^ word) * _FACTOR
    return state ^ (state >> _SHIFT)


@inlined
def leading_digits(word):  # type: ignore[no-untyped-def]
    """Return (count, value) of the decimal digits that a word begins with, converting eight bytes of text in
    parallel."""
    found = word ^ _ZEROS
    beyond = ((found + _ABOVE_NINE) | found) & _HIGHS  # only the lowest mark is reliable
    count = np.int64(8) if beyond == 0 else trailing_zeros(beyond) >> 3
    if count == 0:
        return count, np.int64(0)
    found <<= np.uint64(8 * (8 - count))  # pads with leading zeros
    # joins digits to pairs, and by two multiplications the four pairs to a number
    found = (found * np.uint64(10)) + (found >> _EIGHT)
    high = (found & _BYTE_PAIRS) * np.uint64(0x000F424000000064)
    low = ((found >> np.uint64(16)) & _BYTE_PAIRS) * np.uint64(0x0000271000000001)
    return count, np.int64((high + low) >> _SHIFT)


@inlined
def power_of_ten(count):  # type: ignore[no-untyped-def]
    found = np.int64(10) if count & 1 else np.int64(1)
    found *= np.int64(100) if count & 2 else np.int64(1)
    found *= np.int64(10_000) if count & 4 else np.int64(1)
    return found * 100_000_000 if count & 8 else found


@inlined
def first_bytes(word, count):  # type: ignore[no-untyped-def]
    """Return the first ``count`` (less than 8) bytes of a word, the rest 0."""
    return word & ((_ONE << (np.uint64(count) * _EIGHT)) - _ONE)


@by_address
def hashed(buffer, start, end):  # type: ignore[no-untyped-def]
    """Return the hash of a slice, equal to that of :func:`string`."""
    state, at = _SEED, start
    while at + 8 <= end:
        state = mixed(state, load8(buffer, at))
        at += 8
    return mixed(state, first_bytes(load8(buffer, at), end - at)) if at < end else state


@inlined
def equal(a, a_start, b, b_start, count):  # type: ignore[no-untyped-def]
    at = 0
    while at + 8 <= count:
        if load8(a, a_start + at) != load8(b, b_start + at):
            return False
        at += 8
    rest = count - at
    if rest == 0:
        return True
    return first_bytes(load8(a, a_start + at), rest) == first_bytes(load8(b, b_start + at), rest)


_WHOLE_DIGITS: Final = 16
_MOST: Final = 9 * 10**15
"""More microseconds than this may not fit 64 bits of nanoseconds."""


@inlined
def microseconds(buffer, at):  # type: ignore[no-untyped-def]
    """Return (end, nanoseconds) of a JSON number of microseconds, rounded half to even; end -1 (an exponent, too large)
    leaves it to the reference."""
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
    """Return (end, nanoseconds) of ``total`` microseconds and the decimals at ``at``, if any."""
    if byte(buffer, at) != _POINT:
        return at, total * 1000
    at += 1
    first, beyond = at, 0  # beyond: the rest after the third decimal is 0 none, 1 less than half, 2 half, 3 more
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


_SIGNIFICANT: Final = 15
"""A float64 preserves decimals of up to this many digits."""
_INTEGER_DIGITS: Final = 18
_DEEPEST: Final = 60


@inlined
def past_space(buffer, at):  # type: ignore[no-untyped-def]
    while byte(buffer, at) <= 0x20:
        lead = byte(buffer, at)
        if lead == 0x20:  # eight bytes at a time, for indented files
            others = load8(buffer, at) ^ _SPACES
            at += 8 if others == 0 else trailing_zeros(others) >> 3
        elif lead == 0x0A or lead == 0x0D or lead == 0x09:
            at += 1
        else:
            return at
    return at


@inlined
def ends_value(lead):  # type: ignore[no-untyped-def]
    """Return whether a number or literal ends before this byte."""
    return lead in (_COMMA, _CLOSE, 0x20, 0x0A, 0x0D, 0x09)


@inlined
def string(buffer, at):  # type: ignore[no-untyped-def]
    """Return (closing quote, hash of the content, odd) of the string whose content begins at ``at``."""
    begin, state = at, _SEED
    word = load8(buffer, at)
    marks = special(word)
    while marks == 0:
        state = mixed(state, word)
        at += 8
        word = load8(buffer, at)
        marks = special(word)
    count = trailing_zeros(marks) >> 3
    at += count
    if byte(buffer, at) == _QUOTE:
        return at, (mixed(state, first_bytes(word, count)) if count else state), False
    while byte(buffer, at) != _QUOTE:
        if byte(buffer, at) < 0x20:
            return -1, state, True
        at += 1 + (byte(buffer, at) == _BACKSLASH and byte(buffer, at + 1) >= 0x20)
    return at, hashed(buffer, begin, at), True


@inlined
def number(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """Return (end, end in ``out``, odd, integral, value) of a number, written to ``out`` in the spelling of the
    reference, or unchanged if it is odd."""
    start, negative = at, byte(buffer, at) == _MINUS
    at += negative
    first, value = at, np.int64(0)
    count = np.int64(8)
    while count == 8:
        count, more = leading_digits(load8(buffer, at))
        value = value * power_of_ten(count) + more
        at += count
    digits = at - first
    if digits == 0 or (digits > 1 and byte(buffer, first) == _ZERO):
        return -1, to, True, False, value
    zero = value == 0
    last, odd = at, digits > _INTEGER_DIGITS
    integral = byte(buffer, at) != _POINT
    if not integral:
        at += 1
        fraction, significant = at, np.int64(0)
        while _ZERO <= byte(buffer, at) <= _NINE:
            if byte(buffer, at) != _ZERO:
                last, significant = at + 1, significant if significant else at - fraction + 1
            at += 1
        if at == fraction:
            return -1, to, True, False, value
        odd = odd or _is_odd(last - fraction, significant, digits, zero)
        last = max(last, fraction + 1)
        zero = zero and significant == 0
    if byte(buffer, at) == 0x65 or byte(buffer, at) == 0x45:
        at = _past_exponent(buffer, at + 1)
        last, odd, integral = at, True, False
    put_bytes(out, to, buffer, start, last)
    return at, to + last - start, odd or (negative and zero), integral, -value if negative else value


@inlined
def _is_odd(decimals, first_significant, digits, whole_is_zero):  # type: ignore[no-untyped-def]
    """Return whether a float64 might not preserve these digits (without trailing zeros)."""
    if decimals < 0 or first_significant == 0:  # only zeros after the point
        return digits > _SIGNIFICANT
    if whole_is_zero:
        return first_significant > 4 or decimals - first_significant + 1 > _SIGNIFICANT
    return digits + decimals > _SIGNIFICANT


@by_address
def _past_exponent(buffer, at):  # type: ignore[no-untyped-def]
    at += byte(buffer, at) == 0x2B or byte(buffer, at) == _MINUS
    first = at
    while _ZERO <= byte(buffer, at) <= _NINE:
        at += 1
    return at if at > first else -1


@by_address
def _literal(buffer, at):  # type: ignore[no-untyped-def]
    word = load8(buffer, at)
    if first_bytes(word, 4) == np.uint64(0x65757274) or first_bytes(word, 4) == np.uint64(0x6C6C756E):
        return at + 4
    return at + 5 if first_bytes(word, 5) == np.uint64(0x65736C6166) else -1


@inlined
def scalar(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """Return (end, end in ``out``, odd) of a string, number or literal, written to ``out`` in the spelling of the
    reference."""
    lead = byte(buffer, at)
    if lead == _MINUS or _ZERO <= lead <= _NINE:
        end, to, odd, _, _ = number(buffer, at, out, to)
        return end, to, odd
    odd = False
    if lead == _QUOTE:
        end, _, odd = string(buffer, at + 1)
        end = end + 1 if end >= 0 else -1
    else:
        end = _literal(buffer, at)
    put_bytes(out, to, buffer, at, end)
    return end, to + max(end - at, 0), odd


@by_address
def value(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """Return (end, end in ``out``, odd) of any value, written to ``out`` without white space."""
    depth, objects, odd = 0, np.uint64(0), False
    while True:
        lead = byte(buffer, at)
        opened = lead in (_OPEN_LIST, _OPEN)
        if opened:
            put_byte(out, to, lead)
            to += 1
            at = past_space(buffer, at + 1)
            depth += 1
            objects = (objects << np.uint64(1)) | np.uint64(lead == _OPEN)
            if depth > _DEEPEST:
                return -1, to, True
        else:
            at, to, strange = scalar(buffer, at, out, to)
            odd = odd or strange
            if at < 0:
                return -1, to, True
        while depth:
            within = objects & np.uint64(1)
            at = past_space(buffer, at)
            if byte(buffer, at) == (_CLOSE if within else _CLOSE_LIST):
                put_byte(out, to, byte(buffer, at))
                to += 1
                at += 1
                depth -= 1
                objects >>= np.uint64(1)
                opened = False
                continue
            if not opened:
                if byte(buffer, at) != _COMMA:
                    return -1, to, True
                put_byte(out, to, _COMMA)
                to += 1
                at = past_space(buffer, at + 1)
                odd = odd or within != 0
            if within:
                at, to, strange = _member_name(buffer, at, out, to)
                odd = odd or strange
                if at < 0:
                    return -1, to, True
            break
        if depth == 0:
            return at, to, odd


@by_address
def _member_name(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """Return (start of the value, end in ``out``, odd) after the name of a member."""
    if byte(buffer, at) != _QUOTE:
        return -1, to, True
    end, _, odd = string(buffer, at + 1)
    colon = past_space(buffer, end + 1) if end >= 0 else -1
    if end < 0 or byte(buffer, colon) != _COLON:
        return -1, to, True
    put_bytes(out, to, buffer, at, end + 1)
    to += end + 1 - at
    put_byte(out, to, _COLON)
    return past_space(buffer, colon + 1), to + 1, odd
