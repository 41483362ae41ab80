"""Events, one after the other, from a padded buffer into columns."""

from __future__ import annotations

import numpy as np

from perfkit_core.sources.portion import DURATION, FIRST_INTEGER, FIRST_TEXT, NULL, PAIR, PLACE, PROCESS, START, THREAD
from perfkit_core.sources.scan.arguments import arguments
from perfkit_core.sources.scan.interning import FULL, intern
from perfkit_core.sources.scan.keys import BROKEN_TEXT, NO_ROOM, context_of, key
from perfkit_core.sources.scan.names import before_duration
from perfkit_core.sources.scan.state import (
    ARGS,
    AUX,
    CAT,
    DUR,
    NAME,
    ON_DEVICE,
    PH,
    PID,
    SLOW_PAIR,
    TID,
    TOP_KEYS,
    TS,
    UNKNOWN_PAIR,
    number_of,
)
from perfkit_core.sources.scan.times import microseconds
from perfkit_core.sources.scan.tokens import past_space, string, value
from perfkit_core.sources.scan.words import byte, compiled, hashed, int64, put_int32, put_int64

CLEAN, CLOSED, BROKEN, ROWS_FULL, GROW, NEW_PAIR = range(6)
"""Why a scan stopped: all consumed up to a comma; at the bracket that closes the list; at an event that the reference
has to look at; no row left; a dictionary is full; a pair of category and name that Python has to label first."""

NO_PAIR = -3
_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _MINUS, _ZERO, _NINE = (
    0x22, 0x2C, 0x3A, 0x7B, 0x7D, 0x5B, 0x5D, 0x2D, 0x30, 0x39,
)  # fmt: skip
_NO_PHASE, _SPAN, _FLOW, _OTHER, _INSTANT = range(5)
_CLASS_BITS, _PID_BITS, _AUX_BITS = 10, 14, 12


@compiled
def scan(buffer, at, end, memory, columns):  # type: ignore[no-untyped-def]
    """(status, position) after as many events as possible, from ``at``, the ``{`` of an event.

    Everything before the returned position has been read completely; ``columns`` says how much of it is in use.
    """
    while True:
        if columns.rows >= columns.capacity:
            return ROWS_FULL, at
        columns.serial += 1
        behind, text, kind = _event(buffer, at, memory, columns)
        if behind < 0:
            return (GROW if behind == NO_ROOM else NEW_PAIR if behind == NO_PAIR else BROKEN), at
        follows = past_space(buffer, behind)
        closed = byte(buffer, follows) == _CLOSE_LIST
        if not closed:
            if byte(buffer, follows) != _COMMA:
                return BROKEN, at
            follows = past_space(buffer, follows + 1)
            if byte(buffer, follows) != _OPEN and follows < end:
                return BROKEN, at
        if kind != _FLOW:
            if kind == _OTHER:
                _set_aside(columns, at, behind)
            else:
                columns.text = text
                if columns.odd_text:
                    put_int64(columns.recoded, columns.recoded_rows, columns.rows)
                    columns.recoded_rows += 1
            columns.rows += 1
            put_int32(columns.rest_ends, columns.rows, columns.text)
        at = follows
        if closed or at >= end:
            return (CLOSED if closed else CLEAN), at


@compiled
def _set_aside(columns, start, end):  # type: ignore[no-untyped-def]
    at = 3 * columns.slow_rows
    put_int64(columns.slow, at, columns.rows)
    put_int64(columns.slow, at + 1, start)
    put_int64(columns.slow, at + 2, end)
    columns.slow_rows += 1


@compiled
def _clear(memory, columns):  # type: ignore[no-untyped-def]
    """Nothing is known yet of the row behind those in use."""
    columns.odd_text = 0
    columns.empty = 0
    for column in range(columns.number_rows):
        put_int64(columns.numbers, column * columns.capacity + columns.rows, NULL if column >= FIRST_INTEGER else 0)
    for column in range(FIRST_TEXT, columns.code_rows):
        put_int32(columns.codes, column * columns.capacity + columns.rows, -1)
    for i in range(AUX):
        put_int64(memory.aux, i, 0)


@compiled
def _event(buffer, at, memory, columns):  # type: ignore[no-untyped-def]
    """(end, end of the row's text, _SPAN, _FLOW or _OTHER) of the event at ``at``. A negative end: see ``scan``."""
    _clear(memory, columns)
    scratch, to = columns.rest, columns.text
    category, name, process, thread, pair = np.int64(0), np.int64(-1), np.int64(0), np.int64(0), np.int64(-1)
    kind, odd, bare, coded, member = _NO_PHASE, False, False, False, np.int64(-1)
    at = past_space(buffer, at + 1)
    while True:
        start, _, member, strange = key(
            buffer, at, memory.tops, memory.next_tops, context_of(member, kind), memory.keys
        )
        if start < 0:
            return start, to, _OTHER
        odd = odd or strange or int64(memory.seen_tops, member) == columns.serial
        put_int64(memory.seen_tops, member, columns.serial)
        end = np.int64(-1)
        if member in (TS, DUR):
            end, found, strange = _time(buffer, start, scratch, to)
            odd = odd or strange
            put_int64(columns.numbers, (START if member == TS else DURATION) * columns.capacity + columns.rows, found)
        elif member in (PID, TID):
            end, token, strange = _token(buffer, start, memory, scratch, to)
            odd = odd or strange
            if member == PID:
                process = token
            else:
                thread = token
        elif member == PH and _is_letter(buffer, start):
            kind, end = _phase(byte(buffer, start + 1)), start + 3
        elif member == CAT and byte(buffer, start) == _QUOTE:
            odd = odd or pair >= 0  # the arguments were read for another category
            close, text_hash, strange = string(buffer, start + 1)
            odd = odd or strange
            if close >= 0:
                category, end = intern(memory.categories, buffer, start + 1, close, text_hash), close + 1
                if category == FULL:
                    return np.int64(NO_ROOM), to, _OTHER
        elif member == NAME and byte(buffer, start) == _QUOTE:
            odd = odd or pair >= 0
            end, name, bare, coded = _name(buffer, start, memory)
            odd = odd or (coded and memory.glued != 0)
        elif member == ARGS and byte(buffer, start) == _OPEN and name >= 0:
            pair = _pair(memory, category, name)
            if pair < 0:
                return pair, to, _OTHER
            on_device = (int64(memory.flags, pair) & ON_DEVICE) != 0
            end, to, strange = arguments(buffer, start, memory, columns, on_device, category)
            odd = odd or strange
        else:
            end, _, strange = value(buffer, start, scratch, to)
            odd = odd or strange or member < len(TOP_KEYS)
        if end < 0:
            return end, to, _OTHER
        at = past_space(buffer, end)
        if byte(buffer, at) == _CLOSE:
            break
        if byte(buffer, at) != _COMMA:
            return np.int64(BROKEN_TEXT), to, _OTHER
        at = past_space(buffer, at + 1)
    at += 1
    if kind == _FLOW and not odd and not coded:
        return at, to, _FLOW
    if (kind != _SPAN and kind != _INSTANT) or odd or name < 0:
        return at, to, _OTHER
    pair = _pair(memory, category, name) if pair < 0 else pair
    if pair < 0:
        return pair, to, _OTHER
    odd = (bare and kind == _SPAN) or (int64(memory.flags, pair) & SLOW_PAIR) != 0
    place, label = np.int64(0), int64(memory.device_class, pair)
    if label >= 0:
        place, strange = _place(memory, label, process)
        odd = odd or strange
        if place < 0:
            return np.int64(NO_ROOM), to, _OTHER
    put_int32(columns.codes, PAIR * columns.capacity + columns.rows, pair)
    put_int32(columns.codes, PROCESS * columns.capacity + columns.rows, process)
    put_int32(columns.codes, THREAD * columns.capacity + columns.rows, thread)
    put_int32(columns.codes, PLACE * columns.capacity + columns.rows, place)
    return at, to, _OTHER if odd else _SPAN


@compiled
def _time(buffer, start, scratch, to):  # type: ignore[no-untyped-def]
    """(end, ns, odd) of a time in microseconds."""
    lead, end, found = byte(buffer, start), np.int64(-1), np.int64(0)
    if lead == _MINUS or _ZERO <= lead <= _NINE:
        end, found = microseconds(buffer, start)
    if end >= 0:
        return end, found, False
    end, _, _ = value(buffer, start, scratch, to)
    return end, np.int64(0), True


@compiled
def _token(buffer, start, memory, scratch, to):  # type: ignore[no-untyped-def]
    """(end, number of the token, odd) of a process or thread. The end is NO_ROOM when a dictionary is full."""
    end, _, odd = value(buffer, start, scratch, to)
    if end < 0:
        return end, np.int64(0), True
    token = intern(memory.tokens, buffer, start, end, hashed(buffer, start, end))
    odd = odd or byte(buffer, start) == _OPEN or byte(buffer, start) == _OPEN_LIST
    return (np.int64(NO_ROOM) if token == FULL else end), token, odd


@compiled
def _name(buffer, start, memory):  # type: ignore[no-untyped-def]
    """(end, number of the name, bare, odd) of the string at ``start``; bare: without the duration it should have;
    odd: Python says what it is."""
    close, key, odd = string(buffer, start + 1)
    if close < 0:
        return np.int64(BROKEN_TEXT), np.int64(-1), False, True
    stop, bare = close, False
    if memory.glued:
        cut = before_duration(buffer, start + 1, close)
        bare = cut < 0
        if not bare:
            stop, key = cut, hashed(buffer, start + 1, cut)
    name = intern(memory.names, buffer, start + 1, stop, key)
    return (np.int64(NO_ROOM) if name == FULL else close + 1), name, bare, odd


@compiled
def _pair(memory, category, name):  # type: ignore[no-untyped-def]
    """Number of the pair; NO_PAIR while nobody has said what it means, NO_ROOM when the dictionary is full."""
    pair = number_of(memory.pairs, (category << 32) | name)
    if pair == FULL or pair >= memory.pairs_known:
        return np.int64(NO_ROOM)
    return np.int64(NO_PAIR) if int64(memory.flags, pair) == UNKNOWN_PAIR else pair


@compiled
def _is_letter(buffer, start):  # type: ignore[no-untyped-def]
    """Whether a string of one plain character begins here."""
    letter = byte(buffer, start + 1)
    plain = 0x20 <= letter < 0x7F and letter != _QUOTE and letter != 0x5C
    return plain and byte(buffer, start) == _QUOTE and byte(buffer, start + 2) == _QUOTE


@compiled
def _phase(letter):  # type: ignore[no-untyped-def]
    """What the ``ph`` of an event makes of it."""
    if letter == 0x58:  # X
        return _SPAN
    if letter == 0x69 or letter == 0x49 or letter == 0x52 or letter == 0x43:  # i, I, R, C
        return _INSTANT
    return _FLOW if letter == 0x73 or letter == 0x74 or letter == 0x66 else _OTHER  # s, t, f


@compiled
def _place(memory, label, process):  # type: ignore[no-untyped-def]
    """(number, odd) of what tells the device: the label, the process and the arguments. FULL: no room."""
    key, shift = label | (process << _CLASS_BITS), _CLASS_BITS + _PID_BITS
    odd = label >= 1 << _CLASS_BITS or process >= 1 << _PID_BITS
    for i in range(AUX):
        odd = odd or int64(memory.aux, i) >= 1 << _AUX_BITS
        key |= int64(memory.aux, i) << (shift + i * _AUX_BITS)
    return number_of(memory.places, np.int64(0) if odd else key + 1), odd


def place_parts(key: int) -> tuple[int, int, list[int]]:
    """(label, process, arguments) of a place: number 0 of ``memory.places`` is the host's, whose key is 0."""
    key -= 1
    label, key = key & ((1 << _CLASS_BITS) - 1), key >> _CLASS_BITS
    process, key = key & ((1 << _PID_BITS) - 1), key >> _PID_BITS
    return label, process, [(key >> (i * _AUX_BITS)) & ((1 << _AUX_BITS) - 1) for i in range(AUX)]
