"""The memory of the scanner. Compiled code receives it as numpy records, whose fields are integers and addresses."""

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
"""Result of :func:`intern` and :func:`number_of` if there is no room for a new item."""
BROKEN_TEXT, NO_ROOM, NO_PAIR = -1, -2, -3
"""Codes that are returned instead of a position. BROKEN_TEXT: the reference reader has to read on, as the text may not
be JSON. NO_ROOM: a dictionary is full. NO_PAIR: the dialect has not labelled this pair of category and name yet."""

INTERNER: Final = np.dtype(
    [(name, np.int64) for name in ("slots", "hashes", "ends", "bytes", "mask", "capacity", "arena", "count", "wanted")]
)
"""A dictionary of byte slices. The first four fields are addresses. Slice i is ``bytes[ends[i]:ends[i + 1]]``.
``slots`` is a hash table of slice numbers with open addressing. ``wanted`` is the length of a slice that did not fit,
or 0."""


class Interner:
    """Distinct byte slices, numbered by first appearance. Owns the memory of ``record``, an INTERNER record."""

    def __init__(self, record: Any, *slices: bytes, capacity: int = 1024, arena: int = 1 << 16) -> None:
        self.record = record
        self._allocate(capacity, arena)
        for text in slices:
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
        """Whether a slice did not fit."""
        return bool(self.record["wanted"])

    def slices(self, first: int = 0) -> list[bytes]:
        ends = self._ends[first : len(self) + 1].tolist()
        return [self._bytes[start:end].tobytes() for start, end in itertools.pairwise(ends)]

    def grow(self) -> None:
        """Double the room. Slices keep their numbers."""
        count, hashes, ends, held = len(self), self._hashes, self._ends, self._bytes
        used = int(ends[count])
        self._allocate(2 * self.capacity, max(2 * len(held), 2 * (used + int(self.record["wanted"]) + PAD)))
        self._hashes[:count], self._ends[: count + 1] = hashes[:count], ends[: count + 1]
        self._bytes[:used] = held[:used]
        self.record["count"] = count
        _fill(self.record)

    def _allocate(self, capacity: int, arena: int) -> None:
        self._slots: npt.NDArray[np.int32] = np.full(2 * capacity, -1, np.int32)
        self._hashes = np.zeros(capacity, np.uint64)
        self._ends = np.zeros(capacity + 1, np.int64)
        self._bytes = np.zeros(arena, np.uint8)
        addresses = (array.ctypes.data for array in (self._slots, self._hashes, self._ends, self._bytes))
        values = (*addresses, 2 * capacity - 1, capacity, arena, 0, 0)
        for name, value in zip(INTERNER.names or (), values, strict=True):
            self.record[name] = value


@by_address
def intern(interner, buffer, start, end, key):  # type: ignore[no-untyped-def]
    """Return the number of the slice with hash ``key``. A new slice is added, but if there is no room, return FULL."""
    length = end - start
    slot = np.int64(key >> np.uint64(32)) & interner.mask
    number = np.int64(int32(interner.slots, slot))
    while number >= 0:
        begin = int64(interner.ends, number)
        same = uint64(interner.hashes, number) == key and int64(interner.ends, number + 1) - begin == length
        if same and equal(interner.bytes, begin, buffer, start, length):
            return number
        slot = (slot + 1) & interner.mask
        number = np.int64(int32(interner.slots, slot))
    return _added(interner, buffer, start, length, key, slot)


@inlined
def slice_end(interner, number, buffer, start):  # type: ignore[no-untyped-def]
    """Return the end of slice ``number`` in the text at ``start``, or -1 if the text does not begin with this slice."""
    begin = int64(interner.ends, number)
    length = int64(interner.ends, number + 1) - begin
    return start + length if equal(interner.bytes, begin, buffer, start, length) else np.int64(-1)


@by_address
def _added(interner, buffer, start, length, key, slot):  # type: ignore[no-untyped-def]
    number, begin = interner.count, int64(interner.ends, interner.count)
    if number >= interner.capacity or begin + length + PAD > interner.arena:
        interner.wanted = max(length, 1)
        return np.int64(FULL)
    put_bytes(interner.bytes, begin, buffer, start, start + length)
    put_uint64(interner.hashes, number, key)
    put_int64(interner.ends, number + 1, begin + length)
    put_int32(interner.slots, slot, number)
    interner.count = number + 1
    return number


@by_address
def _fill(interner):  # type: ignore[no-untyped-def]
    for number in range(interner.count):
        slot = np.int64(uint64(interner.hashes, number) >> np.uint64(32)) & interner.mask
        while int32(interner.slots, slot) >= 0:
            slot = (slot + 1) & interner.mask
        put_int32(interner.slots, slot, number)


TOP_KEYS: Final = (b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args")
PH, CAT, NAME, PID, TID, TS, DUR, ARGS = range(8)

# The action for an argument is chosen by its key. INTEGER + i stores the value in integer column i. NOT_NEGATIVE + i
# does the same, but leaves negative numbers to the reference reader. TEXT + i stores the value in text column i.
REST, DROPPED, DROPPED_IF_EMPTY, OFFSET, STREAM_OF_DEVICE = 0, 1, 2, 3, 4
INTEGER, NOT_NEGATIVE, TEXT = 16, 40, 64

ON_DEVICE, SLOW_PAIR, UNKNOWN_PAIR = 1, 2, 128
"""Flags of a pair of category and name. ON_DEVICE: its events are device work. SLOW_PAIR: the reference reader has to
read its events. UNKNOWN_PAIR: the dialect has not labelled the pair yet."""

CONTEXTS: Final = 16
"""Number of kinds of events for which the order of keys is stored separately."""

AUX: Final = 3
"""Largest number of arguments that may identify the device of an event."""

COLUMNS: Final = np.dtype(
    [(name, np.int64) for name in ("numbers", "codes", "rest", "rest_ends", "slow", "capacity", "number_rows",
                                   "code_rows", "rows", "text", "slow_rows", "recoded_rows", "recoded",
                                   "serial", "odd_text", "empty", "used")]
)  # fmt: skip
"""The rows of a stretch. The fields up to ``slow``, and ``recoded``, are addresses of arrays:

- ``numbers[c, row]`` (int64) and ``codes[c, row]`` (int32) are the columns;
- ``rest[rest_ends[row]:rest_ends[row + 1]]`` is the text of a row's arguments without a column;
- ``slow[i]`` is (row, start, end) of an event that the reference reader has to read; its row is left empty;
- ``recoded[i]`` is a row whose arguments the reference reader has to write again.

``rows``, ``text``, ``slow_rows`` and ``recoded_rows`` are the used sizes of these arrays. ``serial`` is the number of
the current event. ``odd_text`` is set if its arguments have to be written again, and ``empty`` counts its empty
DROPPED_IF_EMPTY arguments. Optional cells after the used rows are empty. If ``used`` is set, the first unused row
may be filled.
"""

KEYS: Final = np.dtype([(name, np.int64) for name in ("slots", "keys", "mask", "capacity", "count")])

NO_PHASE, SPAN, FLOW, OTHER, INSTANT = range(5)
"""Kinds of events, according to their ``ph``."""

EVENT: Final = np.dtype(
    [(name, np.int64) for name in ("category", "name", "process", "thread", "pair", "kind", "text", "odd", "bare",
                                   "coded")]
)  # fmt: skip
"""The current event. ``category`` to ``pair`` are numbers in dictionaries. ``text`` is the end of the row's text.
``odd`` is set if the reference reader has to read the event, ``bare`` if the name does not end with the duration, and
``coded`` if Python has to decode the name."""

MEMORY: Final = np.dtype(
    [(name, INTERNER) for name in ("tops", "arguments", "categories", "names", "tokens", "texts")]
    + [(name, KEYS) for name in ("pairs", "places", "lanes", "origins")]
    + [("event", EVENT)]
    + [(name, np.int64) for name in ("actions", "aux_of", "seen_tops", "seen_arguments", "next_tops",
                                     "next_arguments", "flags", "device_class", "aux",
                                     "keys", "pairs_known", "glued", "stream", "empty_keys",
                                     "last_category", "last_process", "last_thread")]
)  # fmt: skip
"""All memory of a scanner: the dictionaries, the current event, and the following fields.

- Addresses of int64 arrays with ``keys`` items: ``actions`` has the action of each argument, ``aux_of`` its index in
  ``aux`` or -1, and ``seen_…`` the serial number of the last event with this key.
- Addresses of int64 arrays with CONTEXTS items per key: ``next_…`` has the key that came next the last time.
- Addresses of int64 arrays with ``pairs_known`` items: ``flags`` and ``device_class`` of each pair.
- ``aux`` is the address of the current event's arguments that identify its device.
- ``glued`` is set if names end with their duration. ``stream`` is the integer column of streams. ``empty_keys`` is the
  number of DROPPED_IF_EMPTY keys.
- ``last_…`` are the values of the previous event, because most events have the same values.

The items of ``lanes`` combine a process, a thread and a place; the items of ``origins`` combine a pair and a lane.
"""


class Keys:
    """Distinct integers, numbered by first appearance. Owns the memory of ``record``, a KEYS record."""

    def __init__(self, record: Any, *keys: int, capacity: int = 1024) -> None:
        self.record = record
        self._allocate(capacity)
        for key in keys:
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
    first = {"tops": TOP_KEYS, "categories": (b"",), "tokens": (b"null",), "texts": (b"null",)}
    return {
        name: Interner(memory[name], *first.get(name, ()))
        for name in MEMORY.names or () if MEMORY.fields and MEMORY.fields[name][0] == INTERNER
    }  # fmt: skip


@inlined
def number_of(table, key):  # type: ignore[no-untyped-def]
    """Return the number of an integer. A new integer is added. Return FULL if there is no room for it."""
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
