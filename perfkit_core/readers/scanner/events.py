"""The scanner's compiled loop. It reads events from a padded buffer into columns. Many events have the same category,
name, process, thread and device. Each distinct combination is called an origin, and has a number."""

from __future__ import annotations

from typing import Final

import numpy as np

from perfkit_core.base.runtime.compiled import compiled, inlined
from perfkit_core.base.runtime.primitives import byte, int64, put_int32, put_int64
from perfkit_core.readers.chrome.event_rows import DURATION, FIRST_INTEGER, FIRST_TEXT, ORIGIN, START
from perfkit_core.readers.chrome.rows import NULL
from perfkit_core.readers.scanner import state
from perfkit_core.readers.scanner.members import context_of, key, member, name, pair
from perfkit_core.readers.scanner.state import AUX, number_of
from perfkit_core.readers.scanner.tokens import past_space

_BITS: Final = 20
_MASK: Final = (1 << _BITS) - 1


@inlined
def origin(memory, pair, process, thread, device):  # type: ignore[no-untyped-def]
    """Return (number of the event's origin, whether the slower reference reader must read the event). The number is
    negative if a dictionary is full."""
    odd = process > _MASK or thread > _MASK or device > _MASK
    lane = number_of(memory.lanes, np.int64(0) if odd else (process << (2 * _BITS)) | (thread << _BITS) | device)
    return lane if lane < 0 else number_of(memory.origins, (pair << 32) | lane), odd


def origin_parts(key: int, lanes: list[int]) -> tuple[int, int, int, int]:
    lane = lanes[key & 0xFFFFFFFF]
    return key >> 32, lane >> (2 * _BITS), (lane >> _BITS) & _MASK, lane & _MASK


_CLASS_BITS, _PID_BITS, _AUX_BITS = 10, 14, 12


@compiled
def device_of(memory, label, process):  # type: ignore[no-untyped-def]
    """Return (number of the event's device, whether the slower reference reader must read the event). The number is
    negative if the dictionary of devices is full."""
    key, shift = label | (process << _CLASS_BITS), _CLASS_BITS + _PID_BITS
    odd = label >= 1 << _CLASS_BITS or process >= 1 << _PID_BITS
    for i in range(AUX):
        odd = odd or int64(memory.aux, i) >= 1 << _AUX_BITS
        key |= int64(memory.aux, i) << (shift + i * _AUX_BITS)
    return number_of(memory.places, np.int64(0) if odd else key + 1), odd


def place_parts(key: int) -> tuple[int, int, list[int]]:
    """Return (label, process, arguments) of the device with this key. The key must not be 0, which means the host."""
    key -= 1
    label, key = key & ((1 << _CLASS_BITS) - 1), key >> _CLASS_BITS
    process, key = key & ((1 << _PID_BITS) - 1), key >> _PID_BITS
    return label, process, [(key >> (i * _AUX_BITS)) & ((1 << _AUX_BITS) - 1) for i in range(AUX)]


CLEAN, CLOSED, BROKEN, ROWS_FULL, GROW, NEW_PAIR = range(6)
"""Reasons why a scan stops.

- CLEAN: all text was read; it ends with the comma after an event
- CLOSED: the list of events ends
- BROKEN: the scanner cannot read the next event, so the slower reference reader must continue
- ROWS_FULL: no row is left
- GROW: a dictionary is full
- NEW_PAIR: the next event has a new pair of category and name, and the dialect must label it first
"""

_COMMA, _OPEN, _CLOSE, _CLOSE_LIST = 0x2C, 0x7B, 0x7D, 0x5D


@compiled
def scan(buffer: int, at: int, end: int, memory: state.MemoryRecord, columns: state.ColumnsRecord) -> tuple[int, int]:
    """Read events. The first begins at ``at``. Return (reason to stop, position after the last event read)."""
    while columns.rows < columns.capacity and columns.link_end_rows < columns.capacity:
        columns.serial += 1
        event_end, kind = _event(buffer, at, memory, columns)
        if event_end < 0:
            return (GROW if event_end == state.NO_ROOM else NEW_PAIR if event_end == state.NO_PAIR else BROKEN), at
        follows = past_space(buffer, event_end)
        closed = byte(buffer, follows) == _CLOSE_LIST
        if not closed:
            if byte(buffer, follows) != _COMMA:
                return BROKEN, at
            follows = past_space(buffer, follows + 1)
            if byte(buffer, follows) != _OPEN and follows < end:
                return BROKEN, at
        if kind != state.FLOW:
            _keep(at, event_end, kind, memory, columns)
        elif memory.event.kind == state.FLOW:
            columns.links += 1
            _keep_link(memory, columns)
        elif memory.event.kind == state.METADATA:
            columns.metadata += 1
        else:
            columns.blanks += 1
        at = follows
        if closed or at >= end:
            return (CLOSED if closed else CLEAN), at
    return ROWS_FULL, at


@inlined
def _keep(start, end, kind, memory, columns):  # type: ignore[no-untyped-def]
    if kind == state.OTHER:
        at = state.SLOW_CELLS * columns.slow_rows
        put_int64(columns.slow, at, columns.rows)
        put_int64(columns.slow, at + 1, start)
        put_int64(columns.slow, at + 2, end)
        put_int64(columns.slow, at + 3, columns.links)
        put_int64(columns.slow, at + 4, columns.metadata)
        put_int64(columns.slow, at + 5, columns.blanks)
        put_int64(columns.slow, at + 6, columns.link_end_rows)
        put_int32(columns.codes, ORIGIN * columns.capacity + columns.rows, 0)
        columns.slow_rows += 1
    else:
        columns.text = memory.event.text
        if columns.odd_text:
            put_int64(columns.recoded, columns.recoded_rows, columns.rows)
            columns.recoded_rows += 1
    columns.rows += 1
    columns.used = 0
    put_int32(columns.rest_ends, columns.rows, columns.text)


@inlined
def _keep_link(memory, columns):  # type: ignore[no-untyped-def]
    event, at = memory.event, state.LINK_CELLS * columns.link_end_rows
    if 0 < event.category <= memory.link_categories:
        put_int64(columns.link_ends, at, event.category)
        put_int64(columns.link_ends, at + 1, event.link)
        put_int64(columns.link_ends, at + 2, event.begins)
        put_int64(columns.link_ends, at + 3, event.process)
        put_int64(columns.link_ends, at + 4, event.thread)
        put_int64(columns.link_ends, at + 5, int64(columns.numbers, START * columns.capacity + columns.rows))
        columns.link_end_rows += 1


@inlined
def _clear(memory, columns):  # type: ignore[no-untyped-def]
    event = memory.event
    event.category = event.process = event.thread = 0
    event.name = event.pair = -1
    event.kind, event.text = state.NO_PHASE, columns.text
    event.odd = event.bare = event.coded = event.named = event.linked = 0
    columns.odd_text = columns.empty = 0
    put_int64(columns.numbers, START * columns.capacity + columns.rows, NULL)
    put_int64(columns.numbers, DURATION * columns.capacity + columns.rows, 0)
    if columns.used:  # the previous event left values in this row, but did not become a row
        for column in range(FIRST_INTEGER, columns.number_rows):
            put_int64(columns.numbers, column * columns.capacity + columns.rows, NULL)
        for column in range(FIRST_TEXT, columns.code_rows):
            put_int32(columns.codes, column * columns.capacity + columns.rows, -1)
        columns.used = 0
    for i in range(AUX):
        put_int64(memory.aux, i, 0)


@compiled
def _event(buffer, at, memory, columns):  # type: ignore[no-untyped-def]
    """Read the event at ``at`` into the first unused row. Return (end, kind). A negative end is an error code of
    :mod:`state`. The kind is FLOW for an event to skip, and OTHER for an event left to the reference reader."""
    _clear(memory, columns)
    event, number = memory.event, np.int64(-1)
    at = past_space(buffer, at + 1)
    if byte(buffer, at) == _CLOSE:  # Paddle's list ends with {}
        return at + 1, state.FLOW
    while True:
        context = context_of(number, event.kind)
        start, _, number, odd = key(buffer, at, memory.tops, memory.next_tops, context, memory.keys)
        if start < 0:
            return start, state.OTHER
        event.odd = event.odd or odd or int64(memory.seen_tops, number) == columns.serial
        put_int64(memory.seen_tops, number, columns.serial)
        end = member(buffer, start, number, memory, columns)
        if end < 0:
            return end, state.OTHER
        at = past_space(buffer, end)
        if byte(buffer, at) == _CLOSE:
            return _row(buffer, at + 1, memory, columns)
        if byte(buffer, at) != _COMMA:
            return np.int64(state.BROKEN_TEXT), state.OTHER
        at = past_space(buffer, at + 1)


@inlined
def _row(buffer, end, memory, columns):  # type: ignore[no-untyped-def]
    event = memory.event
    if event.kind == state.FLOW and 0 < event.category <= memory.link_categories:
        timed = int64(columns.numbers, START * columns.capacity + columns.rows) != NULL
        if not (event.linked and timed and event.process and event.thread):
            return end, state.OTHER
    if event.kind == state.FLOW and not event.odd and not event.coded and event.pair < 0:  # there are no arguments
        return end, state.FLOW
    if event.kind == state.METADATA and event.named and not event.odd and not event.coded:
        if name(buffer, memory) == state.FULL:
            return np.int64(state.NO_ROOM), state.OTHER
        if event.name >= len(state.LABELS):
            return end, state.FLOW
    counter = event.kind == state.COUNTER
    if (event.kind != state.SPAN and event.kind != state.INSTANT and not counter) or event.odd or not event.named:
        return end, state.OTHER
    if counter:  # ``ph`` may come after the arguments
        event.category |= state.OF_COUNTER
        event.pair = np.int64(-1)
    event.pair = pair(buffer, memory) if event.pair < 0 else event.pair
    if event.pair < 0:
        return event.pair, state.OTHER
    slow = (event.bare and event.kind == state.SPAN) or (int64(memory.flags, event.pair) & state.SLOW_PAIR) != 0
    where, label = np.int64(0), int64(memory.device_class, event.pair)
    if label >= 0:
        where, odd = device_of(memory, label, event.process)
        slow = slow or odd
        if where < 0:
            return np.int64(state.NO_ROOM), state.OTHER
    number, odd = origin(memory, event.pair, event.process, event.thread, where)
    if number < 0:
        return np.int64(state.NO_ROOM), state.OTHER
    put_int32(columns.codes, ORIGIN * columns.capacity + columns.rows, number)
    return end, state.OTHER if slow or odd else state.SPAN
