"""The members of one event: each leaves in the record of the event what it says.

Durations that a profiler glues to names: ``matmul[12.345 us]``.
"""

from __future__ import annotations

import numpy as np

from perfkit_core.readers.chrome.portion import DURATION, START
from perfkit_core.readers.scanner.arguments import arguments
from perfkit_core.readers.scanner.interning import FULL, found, intern
from perfkit_core.readers.scanner.keys import BROKEN_TEXT, NO_ROOM
from perfkit_core.readers.scanner.state import (
    ARGS,
    CAT,
    DUR,
    NAME,
    ON_DEVICE,
    PH,
    PID,
    TID,
    TOP_KEYS,
    TS,
    UNKNOWN_PAIR,
    number_of,
)
from perfkit_core.readers.scanner.tokens import ends_value, string, value
from perfkit_core.readers.scanner.words import hashed, microseconds
from perfkit_core.runtime.addresses import by_address, byte, inlined, int64, put_int64


@by_address
def before_duration(buffer, start, end):  # type: ignore[no-untyped-def]
    """Where the name without its duration ends; -1 when it has none. Recognises ``[1 ns]``, ``[1.5 us]``, ms and s."""
    at = end - 1
    if at <= start or byte(buffer, at) != 0x5D or byte(buffer, at - 1) != 0x73:  # "s]"
        return -1
    at -= 2
    if at > start and (byte(buffer, at) == 0x6E or byte(buffer, at) == 0x75 or byte(buffer, at) == 0x6D):  # n, u, m
        at -= 1
    if at <= start or byte(buffer, at) != 0x20:
        return -1
    digits_end = at
    at = _digits_before(buffer, start, at)
    if at == digits_end:
        return -1
    if at > start and byte(buffer, at - 1) == 0x2E:
        whole = _digits_before(buffer, start, at - 1)
        if whole == at - 1:
            return -1
        at = whole
    return at - 1 if at > start and byte(buffer, at - 1) == 0x5B else -1


@by_address
def _digits_before(buffer, start, end):  # type: ignore[no-untyped-def]
    at = end
    while at > start and 0x30 <= byte(buffer, at - 1) <= 0x39:
        at -= 1
    return at


NO_PAIR = -3
"""Instead of a position: nobody has said yet what this category and name mean."""
NO_PHASE, SPAN, FLOW, OTHER, INSTANT = range(5)
"""What the ``ph`` of an event makes of it."""
_QUOTE, _OPEN, _OPEN_LIST, _MINUS, _ZERO, _NINE = 0x22, 0x7B, 0x5B, 0x2D, 0x30, 0x39


@inlined
def member(buffer, start, number, memory, columns):  # type: ignore[no-untyped-def]
    """End of the value at ``start``, of the member with this number; negative: see ``keys`` and NO_PAIR."""
    event, lead = memory.event, byte(buffer, start)
    if number in (TS, DUR):
        return _time(buffer, start, number, event, columns)
    if number in (PID, TID):
        return _token(buffer, start, number, memory, columns)
    if number == PH and _is_letter(buffer, start):
        event.kind = _phase(byte(buffer, start + 1))
        return start + 3
    if number == CAT and lead == _QUOTE:
        return _category(buffer, start, memory)
    if number == NAME and lead == _QUOTE:
        return _name(buffer, start, memory)
    if number == ARGS and lead == _OPEN and event.name >= 0:
        return _arguments(buffer, start, memory, columns)
    end, _, odd = value(buffer, start, columns.rest, event.text)
    event.odd = event.odd or odd or number < len(TOP_KEYS)
    return end


@inlined
def _time(buffer, start, number, event, columns):  # type: ignore[no-untyped-def]
    lead, end, found = byte(buffer, start), np.int64(-1), np.int64(0)
    if lead == _MINUS or _ZERO <= lead <= _NINE:
        end, found = microseconds(buffer, start)
    if end < 0:
        event.odd = 1
        end, _, _ = value(buffer, start, columns.rest, event.text)
    put_int64(columns.numbers, (START if number == TS else DURATION) * columns.capacity + columns.rows, found)
    return end


@inlined
def _token(buffer, start, number, memory, columns):  # type: ignore[no-untyped-def]
    event, last = memory.event, memory.last_process if number == PID else memory.last_thread
    end = found(memory.tokens, last, buffer, start)
    if end < 0 or not ends_value(byte(buffer, end)):
        end, _, odd = value(buffer, start, columns.rest, event.text)
        if end < 0:
            return end
        last = intern(memory.tokens, buffer, start, end, hashed(buffer, start, end))
        if last == FULL:
            return np.int64(NO_ROOM)
        if odd or byte(buffer, start) in (_OPEN, _OPEN_LIST):
            event.odd, last = 1, np.int64(0)
    if number == PID:
        event.process = memory.last_process = last
    else:
        event.thread = memory.last_thread = last
    return end


@inlined
def _category(buffer, start, memory):  # type: ignore[no-untyped-def]
    event = memory.event
    event.odd = event.odd or event.pair >= 0  # the arguments were read for another category
    close = found(memory.categories, memory.last_category, buffer, start + 1)
    if memory.last_category == 0 or close < 0 or byte(buffer, close) != _QUOTE:
        close, key, odd = string(buffer, start + 1)
        if close < 0:
            return np.int64(BROKEN_TEXT)
        number = intern(memory.categories, buffer, start + 1, close, key)
        if number == FULL:
            return np.int64(NO_ROOM)
        event.odd, memory.last_category = event.odd or odd, np.int64(0) if odd else number
        event.category = number
        return close + 1
    event.category = memory.last_category
    return close + 1


@inlined
def _name(buffer, start, memory):  # type: ignore[no-untyped-def]
    event = memory.event
    close, key, coded = string(buffer, start + 1)
    if close < 0:
        return np.int64(BROKEN_TEXT)
    stop = close
    if memory.glued:
        cut = before_duration(buffer, start + 1, close)
        event.bare = cut < 0
        if cut >= 0:
            stop, key = cut, hashed(buffer, start + 1, cut)
    event.coded = coded
    event.odd = event.odd or event.pair >= 0 or (coded and memory.glued != 0)
    event.name = intern(memory.names, buffer, start + 1, stop, key)
    return np.int64(NO_ROOM) if event.name == FULL else close + 1


@inlined
def _arguments(buffer, start, memory, columns):  # type: ignore[no-untyped-def]
    event = memory.event
    event.pair = pair(memory)
    if event.pair < 0:
        return event.pair
    on_device = (int64(memory.flags, event.pair) & ON_DEVICE) != 0
    end, event.text, odd = arguments(buffer, start, memory, columns, on_device, event.category)
    event.odd = event.odd or odd
    return end


@inlined
def pair(memory):  # type: ignore[no-untyped-def]
    """Number of the event's category and name; NO_PAIR, or NO_ROOM when the dictionary is full."""
    number = number_of(memory.pairs, (memory.event.category << 32) | memory.event.name)
    if number == FULL or number >= memory.pairs_known:
        return np.int64(NO_ROOM)
    return np.int64(NO_PAIR) if int64(memory.flags, number) == UNKNOWN_PAIR else number


@inlined
def _is_letter(buffer, start):  # type: ignore[no-untyped-def]
    """Whether a string of one plain character begins here."""
    letter = byte(buffer, start + 1)
    plain = 0x20 <= letter < 0x7F and letter != _QUOTE and letter != 0x5C
    return plain and byte(buffer, start) == _QUOTE and byte(buffer, start + 2) == _QUOTE


@inlined
def _phase(letter):  # type: ignore[no-untyped-def]
    """What the ``ph`` of an event makes of it."""
    if letter == 0x58:  # X
        return SPAN
    if letter == 0x69 or letter == 0x49 or letter == 0x52:  # i, I, R
        return INSTANT
    return FLOW if letter == 0x73 or letter == 0x74 or letter == 0x66 else OTHER  # s, t, f
