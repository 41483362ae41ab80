"""Memory of the scanner, as records of addresses."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.addresses import (
    by_address,
    inlined,
    int32,
    int64,
    put_bytes,
    put_int32,
    put_int64,
    put_uint64,
    uint64,
)
from perfkit_core.readers.scanner.tokens import PAD, equal, hashed

FULL: Final = -1
"""Result of :func:`intern` and :func:`number_of` without room for a new item."""
BROKEN_TEXT, NO_ROOM, NO_PAIR = -1, -2, -3
"""Returned instead of a position: not JSON that the reference accepts; a dictionary is full; the dialect has not
labelled this category and name yet."""

INTERNER: Final = np.dtype(
    [(name, np.int64) for name in ("slots", "hashes", "ends", "bytes", "mask", "capacity", "arena", "count", "wanted")]
)
"""The first four are addresses. Slice i is ``bytes[ends[i]:ends[i + 1]]``; ``slots`` is an open hash table of numbers.
``wanted`` is the length of the last slice that did not fit."""


class Interner:
    """Distinct byte slices, numbered by appearance. Owns the memory of ``record``, an INTERNER."""

    def __init__(self, record: Any, *known: bytes, capacity: int = 1024, arena: int = 1 << 16) -> None:
        self.record = record
        self._allocate(capacity, arena)
        for text in known:
            buffer = np.frombuffer(text + bytes(PAD), np.uint8)
            at = buffer.ctypes.data
            intern(record, at, 0, len(text), np.uint64(hashed(at, 0, len(text))))

    def __len__(self) -> int:
        return int(self.record["count"])

    @property
    def capacity(self) -> int:
        return int(self.record["capacity"])

    @property
    def full(self) -> bool:
        """Whether the last slice did not fit."""
        return bool(self.record["wanted"])

    def slices(self, first: int = 0) -> list[bytes]:
        ends = self._ends[first : len(self) + 1].tolist()
        return [self._bytes[start:end].tobytes() for start, end in itertools.pairwise(ends)]

    def grow(self) -> None:
        """Double the room. Slices keep their numbers."""
        count, hashes, ends, held = len(self), self._hashes, self._ends, self._bytes
        used = int(ends[count])
        self._allocate(2 * self.capacity, max(2 * len(held), 2 * (used + int(self.record["wanted"]) + PAD)))
        self._hashes[:count], self._ends[: count + 1], self._bytes[:used] = (
            hashes[:count],
            ends[: count + 1],
            held[:used],
        )
        self.record["count"] = count
        _fill(self.record)

    def _allocate(self, capacity: int, arena: int) -> None:
        self._slots: npt.NDArray[np.int32] = np.full(2 * capacity, -1, np.int32)
        self._hashes = np.zeros(capacity, np.uint64)
        self._ends = np.zeros(capacity + 1, np.int64)
        self._bytes = np.zeros(arena, np.uint8)
        addresses = tuple(one.ctypes.data for one in (self._slots, self._hashes, self._ends, self._bytes))
        for name, value in zip(
            INTERNER.names or (), (*addresses, 2 * capacity - 1, capacity, arena, 0, 0), strict=True
        ):
            self.record[name] = value


@by_address
def intern(one, buffer, start, end, key):  # type: ignore[no-untyped-def]
    """Return the number of the slice from ``start`` to ``end`` with hash ``key``; FULL: new, without room."""
    length = end - start
    slot = np.int64(key >> np.uint64(32)) & one.mask
    number = np.int64(int32(one.slots, slot))
    while number >= 0:
        begin = int64(one.ends, number)
        same = uint64(one.hashes, number) == key and int64(one.ends, number + 1) - begin == length
        if same and equal(one.bytes, begin, buffer, start, length):
            return number
        slot = (slot + 1) & one.mask
        number = np.int64(int32(one.slots, slot))
    return _added(one, buffer, start, length, key, slot)


@inlined
def slice_end(one, number, buffer, start):  # type: ignore[no-untyped-def]
    """Return the end of slice ``number`` if it is at ``start``, else -1. No slice holds a zero byte."""
    begin = int64(one.ends, number)
    length = int64(one.ends, number + 1) - begin
    return start + length if equal(one.bytes, begin, buffer, start, length) else np.int64(-1)


@by_address
def _added(one, buffer, start, length, key, slot):  # type: ignore[no-untyped-def]
    number, begin = one.count, int64(one.ends, one.count)
    if number >= one.capacity or begin + length + PAD > one.arena:
        one.wanted = max(length, 1)
        return np.int64(FULL)
    put_bytes(one.bytes, begin, buffer, start, start + length)
    put_uint64(one.hashes, number, key)
    put_int64(one.ends, number + 1, begin + length)
    put_int32(one.slots, slot, number)
    one.count = number + 1
    return number


@by_address
def _fill(one):  # type: ignore[no-untyped-def]
    for number in range(one.count):
        slot = np.int64(uint64(one.hashes, number) >> np.uint64(32)) & one.mask
        while int32(one.slots, slot) >= 0:
            slot = (slot + 1) & one.mask
        put_int32(one.slots, slot, number)


TOP_KEYS: Final = (b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args")
PH, CAT, NAME, PID, TID, TS, DUR, ARGS = range(8)

# Actions for an argument, by its key. Integer column i is INTEGER + i (NOT_NEGATIVE + i if negative numbers are left to
# the reference), text column i is TEXT + i.
REST, DROPPED, DROPPED_IF_EMPTY, OFFSET, STREAM_OF_DEVICE = 0, 1, 2, 3, 4
INTEGER, NOT_NEGATIVE, TEXT = 16, 40, 64

ON_DEVICE, SLOW_PAIR, UNKNOWN_PAIR = 1, 2, 128
"""Flags of a pair: device work; its events need the reference; the dialect has not labelled it yet."""

CONTEXTS: Final = 16
"""Kinds of events for which the next key is remembered separately."""

AUX: Final = 3
"""Most arguments that may identify the device of an event."""

COLUMNS: Final = np.dtype(
    [(name, np.int64) for name in ("numbers", "codes", "rest", "rest_ends", "slow", "capacity", "number_rows",
                                   "code_rows", "rows", "text", "slow_rows", "recoded_rows", "recoded",
                                   "serial", "odd_text", "empty", "used")]
)  # fmt: skip
"""The rows of a stretch. Addresses: ``numbers[c, row]`` (int64), ``codes[c, row]`` (int32), the text of arguments
without a column, ``rest[rest_ends[row]:rest_ends[row + 1]]``; ``slow[i]``: (row, start, end) of an event for the
reference, whose row is kept free; ``recoded[i]``: a row whose arguments the reference has to write again. ``rows``,
``text``, ``slow_rows`` and ``recoded_rows`` count those in use; ``serial`` numbers the events; ``odd_text``: the
current event has arguments to write again; ``empty`` counts its empty DROPPED_IF_EMPTY arguments. Optional cells after
the rows in use are empty, except those of the next row if ``used`` is set."""

KEYS: Final = np.dtype([(name, np.int64) for name in ("slots", "keys", "mask", "capacity", "count")])

NO_PHASE, SPAN, FLOW, OTHER, INSTANT = range(5)
"""Kinds of events, by their ``ph``."""

EVENT: Final = np.dtype(
    [(name, np.int64) for name in ("category", "name", "process", "thread", "pair", "kind", "text", "odd", "bare",
                                   "coded")]
)  # fmt: skip
"""The current event, in numbers of dictionaries. ``text``: end of its row's text; ``odd``: the reference has to read
it; ``bare``: its name lacks the duration; ``coded``: Python has to decode the name."""

MEMORY: Final = np.dtype(
    [(name, INTERNER) for name in ("tops", "arguments", "categories", "names", "tokens", "texts")]
    + [(name, KEYS) for name in ("pairs", "places", "lanes", "origins")]
    + [("event", EVENT)]
    + [(name, np.int64) for name in ("actions", "aux_of", "seen_tops", "seen_arguments", "next_tops",
                                     "next_arguments", "flags", "device_class", "aux",
                                     "keys", "pairs_known", "glued", "stream", "empty_keys",
                                     "last_category", "last_process", "last_thread")]
)  # fmt: skip
"""Dictionaries of keys, words and values. Addresses (int64 items): ``actions`` and ``aux_of`` of each argument;
``seen_…``: the last event with this key; ``next_…``: the key that last followed a key (CONTEXTS items a key); ``flags``
and ``device_class`` of each pair of category and name; ``aux``: scratch. They have room for ``keys`` and
``pairs_known`` items. ``glued``: names end with their duration. ``lanes`` combine process, thread and place,
``origins`` pair and lane. ``stream``: the integer column of streams. ``empty_keys``: number of DROPPED_IF_EMPTY keys.
``last_…``: the values of the previous event, which most events repeat."""


class Keys:
    """Distinct integers, numbered by appearance. Owns the memory of ``record``, a KEYS."""

    def __init__(self, record: Any, *known: int, capacity: int = 1024) -> None:
        self.record = record
        self._allocate(capacity)
        for key in known:
            number_of(record, key)

    def __len__(self) -> int:
        return int(self.record["count"])

    @property
    def capacity(self) -> int:
        return int(self.record["capacity"])

    def values(self, first: int = 0) -> list[int]:
        return [int(key) for key in self._keys[first : len(self)]]

    def grow(self) -> None:
        held = self.values()
        self._allocate(2 * self.capacity)
        for key in held:
            number_of(self.record, key)

    def _allocate(self, capacity: int) -> None:
        self._slots = np.full(2 * capacity, -1, np.int32)
        self._keys = np.zeros(capacity, np.int64)
        addresses = (self._slots.ctypes.data, self._keys.ctypes.data)
        for name, value in zip(KEYS.names or (), (*addresses, 2 * capacity - 1, capacity, 0), strict=True):
            self.record[name] = value


def interners(memory: Any) -> dict[str, Interner]:
    """Return the dictionaries of a MEMORY record. Number 0 of categories, tokens and texts is a missing value."""
    known = {"tops": TOP_KEYS, "categories": (b"",), "tokens": (b"null",), "texts": (b"null",)}
    return {
        name: Interner(memory[name], *known.get(name, ()))
        for name in MEMORY.names or () if MEMORY.fields and MEMORY.fields[name][0] == INTERNER
    }  # fmt: skip


@inlined
def number_of(table, key):  # type: ignore[no-untyped-def]
    """Return the number of an integer, a new one for a new integer; FULL without room."""
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & table.mask
    number = np.int64(int32(table.slots, slot))
    while number >= 0:
        if int64(table.keys, number) == key:
            return number
        slot = (slot + 1) & table.mask
        number = np.int64(int32(table.slots, slot))
    number = table.count
    if number >= table.capacity:
        return np.int64(FULL)
    put_int32(table.slots, slot, number)
    put_int64(table.keys, number, key)
    table.count = number + 1
    return number
