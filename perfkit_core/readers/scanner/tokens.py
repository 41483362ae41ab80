"""Compiled functions that read JSON tokens, and copy them as the slower reference reader would write them.

The functions take addresses instead of arrays. Arrays would be passed by value with their shape and strides, and
passing 40 arrays would cost more than the scan. Every buffer ends with :data:`PAD` zero bytes. A zero byte ends every
token, so loops need no bounds. Loads of 8 bytes may reach into the zero bytes.

- An "end" is the position of the byte after the token. It is -1 if the text is not JSON.
- "odd" means that the reference reader may write the text differently. Examples are escapes, bytes that are not ASCII,
  long decimals, and objects with several members, which may repeat a name.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.base.algorithms.addresses import load8, put_bytes
from perfkit_core.base.runtime.compiled import compiled, inlined
from perfkit_core.base.runtime.primitives import byte, put_byte, trailing_zeros

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


@inlined
def special(word):  # type: ignore[no-untyped-def]
    """Mark the bytes of ``word`` that are a quote, a backslash, a control character or not ASCII. The mark of a byte is
    its high bit in the result. The lowest mark is right, but the marks above it may be wrong."""
    # (x - _ONES) & ~x sets the high bit of zero bytes. Borrows may also set the high bits of bytes above them.
    quotes, slashes = word ^ _QUOTES, word ^ _BACKSLASHES
    marks = ((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes) | ((word - _SPACES) & ~word) | word
    return marks & _HIGHS


@inlined
def mixed(state, word):  # type: ignore[no-untyped-def]
    state = (state ^ word) * _FACTOR
    return state ^ (state >> _SHIFT)


@inlined
def leading_digits(word):  # type: ignore[no-untyped-def]
    """Return (count, value) of the decimal digits at the beginning of a word. All digits are converted in parallel."""
    digits = word ^ _ZEROS
    non_digits = ((digits + _ABOVE_NINE) | digits) & _HIGHS  # its lowest bit is in the first byte that is no digit
    count = np.int64(8) if non_digits == 0 else trailing_zeros(non_digits) >> 3
    if count == 0:
        return count, np.int64(0)
    digits <<= np.uint64(8 * (8 - count))  # pads the number with leading zeros
    # Combine the 8 digits into 4 pairs, then the pairs into a number with two multiplications.
    digits = (digits * np.uint64(10)) + (digits >> _EIGHT)
    high = (digits & _BYTE_PAIRS) * np.uint64(0x000F424000000064)
    low = ((digits >> np.uint64(16)) & _BYTE_PAIRS) * np.uint64(0x0000271000000001)
    return count, np.int64((high + low) >> _SHIFT)


@inlined
def power_of_ten(count):  # type: ignore[no-untyped-def]
    power = np.int64(10) if count & 1 else np.int64(1)
    power *= np.int64(100) if count & 2 else np.int64(1)
    power *= np.int64(10_000) if count & 4 else np.int64(1)
    return power * 100_000_000 if count & 8 else power


@inlined
def first_bytes(word, count):  # type: ignore[no-untyped-def]
    """Return ``word`` with all bytes after the first ``count`` (< 8) bytes set to 0."""
    return word & ((_ONE << (np.uint64(count) * _EIGHT)) - _ONE)


@compiled
def hashed(buffer: int, start: int, end: int) -> np.uint64:
    """Return the hash of ``buffer[start:end]``. :func:`string` returns the same hash for the same bytes."""
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
    return rest == 0 or first_bytes(load8(a, a_start + at), rest) == first_bytes(load8(b, b_start + at), rest)


_MAX_MICROSECOND_DIGITS: Final = 16
_MAX_MICROSECONDS: Final = 9 * 10**15
"""A larger number of microseconds may not fit 64 bits as nanoseconds."""


@inlined
def microseconds(buffer, at):  # type: ignore[no-untyped-def]
    """Return (end, nanoseconds) for a JSON number of microseconds, rounded half to even. The end is -1 if the number is
    too large or has an exponent. The slower reference reader reads such numbers."""
    negative = byte(buffer, at) == _MINUS
    at += negative
    first, total, count = at, np.int64(0), np.int64(8)
    while count == 8 and at - first <= _MAX_MICROSECOND_DIGITS:
        count, more = leading_digits(load8(buffer, at))
        total = total * power_of_ten(count) + more
        at += count
    digits = at - first
    if digits == 0 or (digits > 1 and byte(buffer, first) == _ZERO):
        return -1, total
    if digits > _MAX_MICROSECOND_DIGITS or total > _MAX_MICROSECONDS:
        return -1, total
    at, total = decimals(buffer, at, total)
    if at < 0 or byte(buffer, at) == 0x65 or byte(buffer, at) == 0x45:
        return -1, total
    return at, -total if negative else total


@inlined
def decimals(buffer, at, total):  # type: ignore[no-untyped-def]
    """Read the decimal places of a time in microseconds. ``total`` is the integer before the decimal point. Return
    (position after the number, time in ns). The position is -1 if no digit follows the decimal point."""
    if byte(buffer, at) != _POINT:
        return at, total * 1000
    at += 1
    first, rest = at, 0  # rest tells the fraction of a ns: 0 none, 1 below half, 2 half, 3 above half
    while _ZERO <= byte(buffer, at) <= _NINE:
        digit = np.int64(byte(buffer, at) - _ZERO)
        if at - first < 3:
            total = total * 10 + digit
        elif at - first == 3:
            rest = 3 if digit > 5 else 2 if digit == 5 else 1 if digit else 0
        elif digit:
            rest = 3 if rest >= 2 else 1
        at += 1
    if at == first:
        return -1, total
    for _ in range(at - first, 3):
        total *= 10
    return at, total + (rest == 3 or (rest == 2 and total % 2 == 1))


_SIGNIFICANT_DIGITS: Final = 15
"""A float64 preserves any decimal number with at most this many significant digits."""
_MAX_INTEGER_DIGITS: Final = 18
_MAX_DEPTH: Final = 60


@inlined
def past_space(buffer, at):  # type: ignore[no-untyped-def]
    while byte(buffer, at) <= 0x20:
        lead = byte(buffer, at)
        if lead == 0x20:  # skip up to eight spaces together, as files may be indented
            non_spaces = load8(buffer, at) ^ _SPACES
            at += 8 if non_spaces == 0 else trailing_zeros(non_spaces) >> 3
        elif lead == 0x0A or lead == 0x0D or lead == 0x09:
            at += 1
        else:
            return at
    return at


@inlined
def ends_value(lead):  # type: ignore[no-untyped-def]
    """Return whether this byte ends a number or literal."""
    return lead in (_COMMA, _CLOSE, 0x20, 0x0A, 0x0D, 0x09)


@inlined
def string(buffer, at):  # type: ignore[no-untyped-def]
    """Return (position of the closing quote, hash, odd) of the string content that begins at ``at``. ``odd`` means that
    the string has escapes or bytes that are not ASCII."""
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
    """Copy a number to ``out`` without trailing zeros. Return (end, end in ``out``, odd, whether it is an integer,
    integer part). ``odd`` means that the reference reader may write the number differently."""
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
    last, odd = at, digits > _MAX_INTEGER_DIGITS
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
        at += 1
        at += byte(buffer, at) == 0x2B or byte(buffer, at) == _MINUS
        exponent = at
        while _ZERO <= byte(buffer, at) <= _NINE:
            at += 1
        if at == exponent:
            return -1, to, True, False, value
        last, odd, integral = at, True, False
    put_bytes(out, to, buffer, start, last)
    return at, to + last - start, odd or (negative and zero), integral, -value if negative else value


@inlined
def _is_odd(decimals, first_significant, digits, integer_is_zero):  # type: ignore[no-untyped-def]
    """Return whether a number has digits that a float64 may not preserve. ``decimals`` is the number of digits after
    the decimal point, without trailing zeros. For example, ``decimals`` is 2 for ``1.250``."""
    if decimals < 0 or first_significant == 0:  # all decimals are 0
        return digits > _SIGNIFICANT_DIGITS
    if integer_is_zero:
        return first_significant > 4 or decimals - first_significant + 1 > _SIGNIFICANT_DIGITS
    return digits + decimals > _SIGNIFICANT_DIGITS


@compiled
def _literal(buffer, at):  # type: ignore[no-untyped-def]
    word = load8(buffer, at)
    if first_bytes(word, 4) == np.uint64(0x65757274) or first_bytes(word, 4) == np.uint64(0x6C6C756E):  # true, null
        return at + 4
    return at + 5 if first_bytes(word, 5) == np.uint64(0x65736C6166) else -1  # false


@inlined
def scalar(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """Copy a string, a number, true, false or null to ``out``. Return (end, end in ``out``, odd). ``odd`` means that
    the reference reader may write the value differently."""
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


@compiled
def value(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """Copy any value to ``out`` without white space. Return (end, end in ``out``, odd). ``odd`` means that the
    reference reader may write the value differently."""
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
            if depth > _MAX_DEPTH:
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


@compiled
def _member_name(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """Copy an object's key to ``out``. Return (start of its value, end in ``out``, odd). ``odd`` means that
    the key has escapes or bytes that are not ASCII."""
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
