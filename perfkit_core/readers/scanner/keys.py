"""Names of members: the same ones follow one another in event after event, so the next one is guessed first."""

from __future__ import annotations

import numpy as np

from perfkit_core.readers.scanner.interning import found, intern
from perfkit_core.readers.scanner.state import CONTEXTS
from perfkit_core.readers.scanner.tokens import past_space, string
from perfkit_core.runtime.addresses import byte, inlined, int64, put_int64

BROKEN_TEXT, NO_ROOM = -1, -2
"""Instead of a position: not JSON as the reference knows it; a dictionary is full."""
_QUOTE, _COLON = 0x22, 0x3A


@inlined
def key(buffer, at, known, following, context, room):  # type: ignore[no-untyped-def]
    """(start of the value, end of the name, number, odd) of the member whose name begins at ``at``.

    ``following``: the number that came next in this context, -1 for none yet. ``room``: numbers below it can be used.
    """
    if byte(buffer, at) != _QUOTE:
        return np.int64(BROKEN_TEXT), at, np.int64(0), True
    odd, number = False, int64(following, context)
    end = found(known, number, buffer, at + 1) if number >= 0 else np.int64(-1)
    if end < 0 or byte(buffer, end) != _QUOTE:
        end, hashed, odd = string(buffer, at + 1)
        if end < 0:
            return np.int64(BROKEN_TEXT), at, np.int64(0), True
        number = intern(known, buffer, at + 1, end, hashed)
        if number < 0 or number >= room:
            return np.int64(NO_ROOM), at, np.int64(0), True
        if not odd:
            put_int64(following, context, number)
    start = past_space(buffer, end + 1)
    if byte(buffer, start) != _COLON:
        return np.int64(BROKEN_TEXT), at, np.int64(0), True
    return past_space(buffer, start + 1), end, number, odd


@inlined
def context_of(number, kind):  # type: ignore[no-untyped-def]
    """Where the key is remembered that comes behind key ``number`` (-1: first) in events of this kind."""
    return (number + 1) * CONTEXTS + (kind & (CONTEXTS - 1))
