"""The arguments of one event: each goes to the column of its key, or into the text of what has no column."""

from __future__ import annotations

import numpy as np

from perfkit_core.readers.chrome.portion import FIRST_INTEGER, FIRST_TEXT, NULL
from perfkit_core.readers.scanner import tokens
from perfkit_core.readers.scanner.interning import FULL, intern
from perfkit_core.readers.scanner.keys import BROKEN_TEXT, NO_ROOM, context_of, key
from perfkit_core.readers.scanner.state import (
    DROPPED_IF_EMPTY,
    INTEGER,
    NOT_NEGATIVE,
    OFFSET,
    REST,
    STREAM_OF_DEVICE,
    TEXT,
)
from perfkit_core.readers.scanner.tokens import past_space, value
from perfkit_core.readers.scanner.words import decimals, hashed
from perfkit_core.runtime.addresses import (
    by_address,
    byte,
    inlined,
    int32,
    int64,
    put_byte,
    put_bytes,
    put_int32,
    put_int64,
)

_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _MINUS, _ZERO, _NINE = 0x22, 0x2C, 0x3A, 0x7B, 0x7D, 0x2D, 0x30, 0x39


@by_address
def arguments(buffer, at, memory, columns, on_device, kind):  # type: ignore[no-untyped-def]
    """(end, end of the row's text, odd) of the object at ``at``; the row is the one behind those in use.
    Events of one ``kind`` have like arguments."""
    odd, begin, to, number = False, columns.text, columns.text, np.int64(-1)
    at = past_space(buffer, at + 1)
    if byte(buffer, at) == _CLOSE:
        return at + 1, to, odd
    while True:
        start, name_end, number, strange = key(
            buffer, at, memory.arguments, memory.next_arguments, context_of(number, kind), memory.keys
        )
        if start < 0:
            return start, to, odd
        odd = odd or strange or int64(memory.seen_arguments, number) == columns.serial
        put_int64(memory.seen_arguments, number, columns.serial)
        end, to, strange = _argument(buffer, at, name_end, start, memory, columns, number, to, to == begin, on_device)
        odd = odd or strange
        if end < 0:
            return end, to, odd
        at = past_space(buffer, end)
        if byte(buffer, at) == _CLOSE:
            if to > begin:
                put_byte(columns.rest, to, _CLOSE)
                to += 1
            return at + 1, to, odd or (columns.empty != 0 and columns.empty != memory.empty_keys)
        if byte(buffer, at) != _COMMA:
            return np.int64(BROKEN_TEXT), to, odd
        at = past_space(buffer, at + 1)


@inlined
def _argument(buffer, name, name_end, start, memory, columns, key_number, to, first, on_device):  # type: ignore[no-untyped-def]
    """(end, end of the row's text, odd) of the value at ``start``."""
    action, row, rest = int64(memory.actions, key_number), columns.rows, columns.rest
    if action == STREAM_OF_DEVICE:
        action = INTEGER + memory.stream if on_device else np.int64(REST)
    end, odd = np.int64(-1), False
    if action >= TEXT:
        cell = (FIRST_TEXT + action - TEXT) * columns.capacity + row
        if int32(columns.codes, cell) >= 0:
            action = np.int64(REST)
        else:
            columns.used = 1
            end, code = _text(buffer, start, memory, rest, to)
            put_int32(columns.codes, cell, code)
            odd = code == 0
    elif action >= INTEGER:
        checked = action >= NOT_NEGATIVE
        cell = (FIRST_INTEGER + action - (NOT_NEGATIVE if checked else INTEGER)) * columns.capacity + row
        if int64(columns.numbers, cell) != NULL:
            action = np.int64(REST)
            odd = checked and byte(buffer, start + (byte(buffer, start) == _QUOTE)) == _MINUS
        else:
            columns.used = 1
            end, odd, found = _integer(buffer, start, rest, to)
            odd = odd or (checked and found < 0) or found == NULL
            put_int64(columns.numbers, cell, found)
    elif action == OFFSET:
        columns.used = 1
        end, found, odd = _offset(buffer, start, rest, to)
        put_int64(columns.numbers, (columns.number_rows - 1) * columns.capacity + row, found)
    elif action != REST:
        end, _, odd = value(buffer, start, rest, to)
        if action == DROPPED_IF_EMPTY:
            odd = odd or not _is_empty(buffer, start, end)
            columns.empty += 1
    if action == REST:
        end, to, strange = _rest(buffer, name, name_end, start, rest, to, first)
        columns.odd_text = columns.odd_text or strange
    place = int64(memory.aux_of, key_number)
    if place >= 0 and end >= 0:
        token = intern(memory.tokens, buffer, start, end, hashed(buffer, start, end))
        if token == FULL:
            return np.int64(NO_ROOM), to, odd
        put_int64(memory.aux, place, token)
    return end, to, odd


@by_address
def _is_empty(buffer, start, end):  # type: ignore[no-untyped-def]
    """Whether this is ``""``, ``[]`` or ``{}``."""
    lead = byte(buffer, start)
    return end == start + 2 and lead in (_QUOTE, _OPEN, 0x5B)


@inlined
def _rest(buffer, key, key_end, start, out, to, first):  # type: ignore[no-untyped-def]
    """Write the key and value as the next member of the row's object."""
    put_byte(out, to, _OPEN if first else _COMMA)
    to += 1
    put_bytes(out, to, buffer, key, key_end + 1)
    to += key_end + 1 - key
    put_byte(out, to, _COLON)
    return value(buffer, start, out, to + 1)


@by_address
def _text(buffer, start, memory, out, to):  # type: ignore[no-untyped-def]
    """(end, code) of a value that is a text as a whole: its distinct ones are decoded by the reference."""
    end, _, _ = value(buffer, start, out, to)
    if end < 0:
        return np.int64(BROKEN_TEXT), np.int64(0)
    code = intern(memory.texts, buffer, start, end, hashed(buffer, start, end))
    return (np.int64(NO_ROOM), code) if code == FULL else (end, code)


@inlined
def _integer(buffer, start, out, to):  # type: ignore[no-untyped-def]
    """(end, odd, value) of an integer or a string of digits; everything else is odd."""
    lead = byte(buffer, start)
    if lead == _MINUS or _ZERO <= lead <= _NINE:
        end, _, odd, integral, found = tokens.number(buffer, start, out, to)
        return end, odd or not integral, found
    end, _, _ = value(buffer, start, out, to)
    if lead != _QUOTE or end < 0:
        return end, True, np.int64(0)
    at, found = start + 1, np.int64(0)
    negative = byte(buffer, at) == _MINUS
    at += negative
    first = at
    while _ZERO <= byte(buffer, at) <= _NINE and at - first < 18:
        found = found * 10 + (byte(buffer, at) - _ZERO)
        at += 1
    return end, at == first or at != end - 1, -found if negative else found


@by_address
def _offset(buffer, start, out, to):  # type: ignore[no-untyped-def]
    """(end, ns, odd) of a text like ``"1064.277 us"``; NULL for what is none."""
    end, _, odd = value(buffer, start, out, to)
    at, total = start + 1, np.int64(0)
    if end < 0 or byte(buffer, start) != _QUOTE:
        return end, np.int64(NULL), odd
    while _ZERO <= byte(buffer, at) <= _NINE and at - start <= 12:
        total = total * 10 + (byte(buffer, at) - _ZERO)
        at += 1
    whole = at
    stop, total = decimals(buffer, at, total)
    plain = stop >= 0 and whole > start + 1 and stop - whole <= 10 and stop == end - 4
    if plain and byte(buffer, stop) == 0x20 and byte(buffer, stop + 1) == 0x75 and byte(buffer, stop + 2) == 0x73:
        return end, total, odd
    return end, np.int64(NULL), odd
