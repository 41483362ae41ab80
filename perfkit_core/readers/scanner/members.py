"""Compiled code that reads the keys and values of one event. Arguments that have no column are collected as text.
``odd`` means that the slower reference reader must read the event. Functions return the position at which they
stopped, or a negative error code of :mod:`state`."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.base.algorithms.addresses import load8, put_bytes
from perfkit_core.base.runtime.compiled import compiled, inlined
from perfkit_core.base.runtime.primitives import byte, int32, int64, put_byte, put_int32, put_int64
from perfkit_core.readers.chrome.event_rows import DURATION, FIRST_INTEGER, FIRST_TEXT, START
from perfkit_core.readers.chrome.rows import NULL
from perfkit_core.readers.scanner import state, tokens
from perfkit_core.readers.scanner.state import FULL, intern, number_of, slice_end
from perfkit_core.readers.scanner.tokens import decimals, ends_value, hashed, microseconds, past_space, string, value

_QUOTE, _COMMA, _COLON, _MINUS, _ZERO, _NINE = 0x22, 0x2C, 0x3A, 0x2D, 0x30, 0x39
_OPEN, _CLOSE, _OPEN_LIST, _LETTER_N = 0x7B, 0x7D, 0x5B, 0x6E
_MOST_ID_DIGITS: Final = 19
_ID_END: Final = np.uint64(1 << 63)


@inlined
def key(buffer, at, interner, following, context, room):  # type: ignore[no-untyped-def]
    """Read the key at ``at``. Return (start of the value, end of the key, number of the key, whether the slower
    reference reader must read the event). The start is negative after an error. The key is compared first with the
    expected key, whose number is ``following[context]``."""
    if byte(buffer, at) != _QUOTE:
        return np.int64(state.BROKEN_TEXT), at, np.int64(0), True
    odd, number = False, int64(following, context)
    end = slice_end(interner, number, buffer, at + 1) if number >= 0 else np.int64(-1)
    if end < 0 or byte(buffer, end) != _QUOTE:
        end, hashed, odd = string(buffer, at + 1)
        if end < 0:
            return np.int64(state.BROKEN_TEXT), at, np.int64(0), True
        number = intern(interner, buffer, at + 1, end, hashed)
        if number < 0 or number >= room:
            return np.int64(state.NO_ROOM), at, np.int64(0), True
        if not odd:
            put_int64(following, context, number)
    start = past_space(buffer, end + 1)
    if byte(buffer, start) != _COLON:
        return np.int64(state.BROKEN_TEXT), at, np.int64(0), True
    return past_space(buffer, start + 1), end, number, odd


@inlined
def context_of(number, kind):  # type: ignore[no-untyped-def]
    """Return the index at which ``following`` holds the key that usually comes after key ``number`` in events of
    this kind. Before the first key, ``number`` is -1."""
    return (number + 1) * state.CONTEXTS + (kind & (state.CONTEXTS - 1))


@compiled
def arguments(buffer, at, memory, columns, on_device, kind):  # type: ignore[no-untyped-def]
    """Read the object of arguments at ``at``. Return (end of the object, end of the copied text in ``rest``, whether
    the slower reference reader must read the event). ``kind`` is the number of the event's category."""
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
            return np.int64(state.BROKEN_TEXT), to, odd
        at = past_space(buffer, at + 1)


@inlined
def _argument(buffer, name, name_end, start, memory, columns, key_number, to, first, on_device):  # type: ignore[no-untyped-def]
    action, row, rest = int64(memory.actions, key_number), columns.rows, columns.rest
    if action == state.STREAM_OF_DEVICE:
        action = state.INTEGER + memory.stream if on_device else np.int64(state.REST)
    end, odd = np.int64(-1), False
    if action >= state.TEXT:
        cell = (FIRST_TEXT + action - state.TEXT) * columns.capacity + row
        if int32(columns.codes, cell) >= 0:
            action = np.int64(state.REST)
        else:
            columns.used = 1
            end, code = _text(buffer, start, memory, rest, to)
            put_int32(columns.codes, cell, code)
            odd = code == 0
    elif action >= state.INTEGER:
        checked, copied = action >= state.NOT_NEGATIVE, state.COPIED <= action < state.NOT_NEGATIVE
        base = state.NOT_NEGATIVE if checked else state.COPIED if copied else state.INTEGER
        cell = (FIRST_INTEGER + action - base) * columns.capacity + row
        if int64(columns.numbers, cell) != NULL:
            action = np.int64(state.REST)
            odd = checked and byte(buffer, start + (byte(buffer, start) == _QUOTE)) == _MINUS
        else:
            columns.used = 1
            end, odd, number = _integer(buffer, start, rest, to)
            odd = odd or (checked and number < 0) or (number == NULL and byte(buffer, start) != _LETTER_N)
            put_int64(columns.numbers, cell, number)
            action = np.int64(state.REST) if copied else action
    elif action == state.OFFSET:
        columns.used = 1
        end, number, odd = _offset(buffer, start, rest, to)
        put_int64(columns.numbers, (columns.number_rows - 1) * columns.capacity + row, number)
    elif action != state.REST:
        end, _, odd = value(buffer, start, rest, to)
        if action == state.DROPPED_IF_EMPTY:
            odd = odd or end != start + 2 or byte(buffer, start) not in (_QUOTE, _OPEN, _OPEN_LIST)
            columns.empty += 1
    if action == state.REST:
        put_byte(rest, to, _OPEN if first else _COMMA)
        to += 1
        put_bytes(rest, to, buffer, name, name_end + 1)
        to += name_end + 1 - name
        put_byte(rest, to, _COLON)
        end, to, strange = value(buffer, start, rest, to + 1)
        columns.odd_text = columns.odd_text or strange
    slot = int64(memory.aux_of, key_number)
    if slot >= 0 and end >= 0:
        token = intern(memory.tokens, buffer, start, end, hashed(buffer, start, end))
        if token == FULL:
            return np.int64(state.NO_ROOM), to, odd
        put_int64(memory.aux, slot, token)
    return end, to, odd


@compiled
def _text(buffer, start, memory, out, to):  # type: ignore[no-untyped-def]
    """Read one value of a text column. Return (position after the value, code). Equal values have equal codes."""
    end, _, _ = value(buffer, start, out, to)
    if end < 0:
        return np.int64(state.BROKEN_TEXT), np.int64(0)
    code = intern(memory.texts, buffer, start, end, hashed(buffer, start, end))
    return (np.int64(state.NO_ROOM), code) if code == FULL else (end, code)


@inlined
def _integer(buffer, start, out, to):  # type: ignore[no-untyped-def]
    """Return (end, odd, value) for an integer, a string of digits, or null. ``odd`` is true for any other value."""
    lead = byte(buffer, start)
    if lead == _MINUS or _ZERO <= lead <= _NINE:
        end, _, odd, integral, integer = tokens.number(buffer, start, out, to)
        return end, odd or not integral, integer
    end, _, odd = value(buffer, start, out, to)
    if lead == _LETTER_N:
        return end, odd, np.int64(NULL)
    if lead != _QUOTE or end < 0:
        return end, True, np.int64(0)
    at, integer = start + 1, np.int64(0)
    negative = byte(buffer, at) == _MINUS
    at += negative
    first = at
    while _ZERO <= byte(buffer, at) <= _NINE and at - first < 18:
        integer = integer * 10 + (byte(buffer, at) - _ZERO)
        at += 1
    return end, at == first or at != end - 1, -integer if negative else integer


@compiled
def _offset(buffer, start, out, to):  # type: ignore[no-untyped-def]
    """Read a time like ``"1064.277 us"``. Return (end, time in ns or NULL, whether the reference reader is needed)."""
    end, _, odd = value(buffer, start, out, to)
    at, total = start + 1, np.int64(0)
    if end < 0 or byte(buffer, start) != _QUOTE:
        return end, np.int64(NULL), odd
    while _ZERO <= byte(buffer, at) <= _NINE and at - start <= 12:
        total = total * 10 + (byte(buffer, at) - _ZERO)
        at += 1
    integer_end = at
    stop, total = decimals(buffer, at, total)
    plain = stop >= 0 and integer_end > start + 1 and stop - integer_end <= 10 and stop == end - 4
    if plain and byte(buffer, stop) == 0x20 and byte(buffer, stop + 1) == 0x75 and byte(buffer, stop + 2) == 0x73:
        return end, total, odd
    return end, np.int64(NULL), odd


@compiled
def before_duration(buffer, start, end):  # type: ignore[no-untyped-def]
    """Return the end of the name in a text such as ``matmul[12.345 us]``, or -1 if the text has no duration."""
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
        integer_start = _digits_before(buffer, start, at - 1)
        if integer_start == at - 1:
            return -1
        at = integer_start
    return at - 1 if at > start and byte(buffer, at - 1) == 0x5B else -1


@compiled
def _digits_before(buffer, start, end):  # type: ignore[no-untyped-def]
    at = end
    while at > start and 0x30 <= byte(buffer, at - 1) <= 0x39:
        at -= 1
    return at


@inlined
def member(buffer, start, number, memory, columns):  # type: ignore[no-untyped-def]
    """Read the value at ``start``. ``number`` is the number of its key, such as ARGS. Return the end of the value."""
    event, lead = memory.event, byte(buffer, start)
    if number in (state.TS, state.DUR):
        return _time(buffer, start, number, event, columns)
    if number in (state.PID, state.TID):
        return _token(buffer, start, number, memory, columns)
    if number == state.PH and lead == _QUOTE:
        letter = byte(buffer, start + 1)
        if 0x20 <= letter < 0x7F and letter != _QUOTE and letter != 0x5C and byte(buffer, start + 2) == _QUOTE:
            if letter == 0x58:  # X
                event.kind = state.SPAN
            elif letter in (0x69, 0x49, 0x52):  # i, I, R
                event.kind = state.INSTANT
            else:
                event.kind = state.FLOW if letter in (0x73, 0x74, 0x66) else state.OTHER  # s, t, f
                event.begins = letter == 0x73
                event.kind = state.METADATA if letter == 0x4D else event.kind  # M
                event.kind = state.COUNTER if letter == 0x43 else event.kind  # C
            return start + 3
    if number == state.CAT and lead == _QUOTE:
        return _category(buffer, start, memory)
    if number == state.NAME and lead == _QUOTE:
        return _name(buffer, start, memory)
    if number == state.ID:
        return _id(buffer, start, event, columns)
    if number == state.ARGS and lead == _OPEN and event.named:
        event.pair = pair(buffer, memory)
        if event.pair < 0:
            return event.pair
        on_device = (int64(memory.flags, event.pair) & state.ON_DEVICE) != 0
        end, event.text, odd = arguments(buffer, start, memory, columns, on_device, event.category)
        event.odd = event.odd or odd
        return end
    end, _, odd = value(buffer, start, columns.rest, event.text)
    event.odd = event.odd or odd or number < len(state.TOP_KEYS)
    return end


@inlined
def _time(buffer, start, number, event, columns):  # type: ignore[no-untyped-def]
    lead, end, time = byte(buffer, start), np.int64(-1), np.int64(0)
    quoted = np.int64(lead == _QUOTE)  # torch_npu writes starts as texts
    first = byte(buffer, start + quoted)
    if first == _MINUS or _ZERO <= first <= _NINE:
        end, time = microseconds(buffer, start + quoted)
    if quoted and end >= 0:
        end = end + 1 if byte(buffer, end) == _QUOTE else np.int64(-1)
    if end < 0:
        event.odd = 1
        end, _, _ = value(buffer, start, columns.rest, event.text)
    put_int64(columns.numbers, (START if number == state.TS else DURATION) * columns.capacity + columns.rows, time)
    return end


@inlined
def _token(buffer, start, number, memory, columns):  # type: ignore[no-untyped-def]
    event, last = memory.event, memory.last_process if number == state.PID else memory.last_thread
    end = slice_end(memory.tokens, last, buffer, start)
    if end < 0 or not ends_value(byte(buffer, end)):
        end, _, odd = value(buffer, start, columns.rest, event.text)
        if end < 0:
            return end
        last = intern(memory.tokens, buffer, start, end, hashed(buffer, start, end))
        if last == FULL:
            return np.int64(state.NO_ROOM)
        if odd or byte(buffer, start) in (_OPEN, _OPEN_LIST):
            event.odd, last = 1, np.int64(0)
    if number == state.PID:
        event.process = memory.last_process = last
    else:
        event.thread = memory.last_thread = last
    return end


@inlined
def _category(buffer, start, memory):  # type: ignore[no-untyped-def]
    event = memory.event
    event.odd = event.odd or event.pair >= 0  # odd if the arguments came first, and were read without the category
    close = slice_end(memory.categories, memory.last_category, buffer, start + 1)
    if memory.last_category == 0 or close < 0 or byte(buffer, close) != _QUOTE:
        close, key, odd = string(buffer, start + 1)
        if close < 0:
            return np.int64(state.BROKEN_TEXT)
        number = intern(memory.categories, buffer, start + 1, close, key)
        if number == FULL:
            return np.int64(state.NO_ROOM)
        event.odd, memory.last_category = event.odd or odd, np.int64(0) if odd else number
        event.category = number
    else:
        event.category = memory.last_category
    return close + 1


@inlined
def _name(buffer, start, memory):  # type: ignore[no-untyped-def]
    event = memory.event
    close, key, coded = string(buffer, start + 1)
    if close < 0:
        return np.int64(state.BROKEN_TEXT)
    if memory.slow_names != 0 and load8(buffer, start + 1) == np.uint64(memory.slow_names):
        event.odd = 1
        return close + 1
    stop = close
    if memory.glued:
        cut = before_duration(buffer, start + 1, close)
        event.bare = cut < 0
        if cut >= 0:
            stop, key = cut, hashed(buffer, start + 1, cut)
    event.coded = coded
    event.odd = event.odd or event.pair >= 0 or (coded and memory.glued != 0)
    event.named, event.name_start, event.name_end, event.name_hash = 1, start + 1, stop, np.int64(key)
    return close + 1


@inlined
def _id(buffer, start, event, columns):  # type: ignore[no-untyped-def]
    quoted = np.int64(byte(buffer, start) == _QUOTE)
    first = at = start + quoted
    number = np.uint64(0)
    while _ZERO <= byte(buffer, at) <= _NINE and at - first < _MOST_ID_DIGITS:
        number = number * np.uint64(10) + np.uint64(byte(buffer, at) - _ZERO)
        at += 1
    plain = at > first and (byte(buffer, first) != _ZERO or at == first + 1) and number < _ID_END
    if plain and (byte(buffer, at) == _QUOTE if quoted else ends_value(byte(buffer, at))):
        event.linked, event.link = 1, np.int64(number)
        return at + quoted
    if quoted:
        close, key, odd = string(buffer, first)
        if close >= 0 and not odd:
            event.linked, event.link = 1, -1 - np.int64(key >> np.uint64(1))
            return close + 1
    end, _, odd = value(buffer, start, columns.rest, event.text)
    event.odd = event.odd or odd
    return end


@inlined
def name(buffer, memory):  # type: ignore[no-untyped-def]
    """Return the number of the event's name. Return FULL if the dictionary is full. The names of flow events are not
    numbered: some writers give each its own."""
    event = memory.event
    if event.name < 0:
        event.name = intern(memory.names, buffer, event.name_start, event.name_end, np.uint64(event.name_hash))
    return event.name


@inlined
def pair(buffer, memory):  # type: ignore[no-untyped-def]
    """Return the number of the event's pair (category, name). Return NO_PAIR if the dialect has not seen the pair yet,
    and NO_ROOM if a dictionary is full."""
    if name(buffer, memory) == FULL:
        return np.int64(state.NO_ROOM)
    number = number_of(memory.pairs, (memory.event.category << 32) | memory.event.name)
    if number == FULL or number >= memory.pairs_known:
        return np.int64(state.NO_ROOM)
    return np.int64(state.NO_PAIR) if int64(memory.flags, number) == state.UNKNOWN_PAIR else number
