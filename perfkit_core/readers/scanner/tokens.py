"""JSON tokens in a padded buffer: where they end, what they are worth, and how the reference writes them again.

Positions are those of the next byte; -1 means that this is no JSON, and the reference has to say what it is. ``odd``
marks what may be JSON, but is written again in other words: escapes, bytes that are not ASCII, long decimals, objects
with several members (which may repeat a name).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.readers.scanner.words import (
    SEED,
    SPACES,
    first_bytes,
    hashed,
    leading_digits,
    mixed,
    power_of_ten,
    special,
    trailing_zeros,
)
from perfkit_core.runtime.addresses import by_address, byte, inlined, load8, put_byte, put_bytes

_QUOTE, _BACKSLASH, _COMMA, _COLON, _POINT, _MINUS, _ZERO, _NINE = 0x22, 0x5C, 0x2C, 0x3A, 0x2E, 0x2D, 0x30, 0x39
_OPEN_LIST, _CLOSE_LIST, _OPEN, _CLOSE = 0x5B, 0x5D, 0x7B, 0x7D
_SIGNIFICANT: Final = 15
"""Decimals of so many digits are written again by a float64 as they are."""
_INTEGER_DIGITS: Final = 18
_DEEPEST: Final = 60


@inlined
def past_space(buffer, at):  # type: ignore[no-untyped-def]
    """The next byte that is no white space."""
    while byte(buffer, at) <= 0x20:
        lead = byte(buffer, at)
        if lead == 0x20:  # indentation, too
            others = load8(buffer, at) ^ SPACES
            at += 8 if others == 0 else trailing_zeros(others) >> 3
        elif lead == 0x0A or lead == 0x0D or lead == 0x09:
            at += 1
        else:
            return at
    return at


@inlined
def ends_value(lead):  # type: ignore[no-untyped-def]
    """Whether a number or literal that came before ends in front of this byte."""
    return lead in (_COMMA, _CLOSE, 0x20, 0x0A, 0x0D, 0x09)


@inlined
def string(buffer, at):  # type: ignore[no-untyped-def]
    """(closing quote, hash of the content, odd) of the string whose content begins at ``at``."""
    begin, state = at, SEED
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
    """(end, end in ``out``, odd, integral, value) of a number, written to ``out`` as the reference writes it
    (as it stands where it is odd)."""
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
    """Whether a float64 may not be written again with these digits (trailing zeros left out)."""
    if decimals < 0 or first_significant == 0:  # only zeros behind the point
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
    """End of true, false or null."""
    word = load8(buffer, at)
    if first_bytes(word, 4) == np.uint64(0x65757274) or first_bytes(word, 4) == np.uint64(0x6C6C756E):
        return at + 4
    return at + 5 if first_bytes(word, 5) == np.uint64(0x65736C6166) else -1


@inlined
def scalar(buffer, at, out, to):  # type: ignore[no-untyped-def]
    """(end, end in ``out``, odd) of a string, number or literal, written to ``out`` as the reference writes it."""
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
    """(end, end in ``out``, odd) of any value, written to ``out`` without white space."""
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
    """(start of the value, end in ``out``, odd) behind the name of a member."""
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
