"""Decimal text to integer nanoseconds in a padded buffer, to the nearest, halves to the even one."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.addresses import byte, inlined, load8
from perfkit_core.sources.scan.words import leading_digits, power_of_ten

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
