"""The memory of the scanner. Compiled code receives it as numpy records, whose fields are integers and addresses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms.addresses import put_bytes
from perfkit_core.base.runtime.compiled import compiled, inlined
from perfkit_core.base.runtime.primitives import int32, int64, put_int32, put_int64, put_uint64, uint64
from perfkit_core.readers.scanner.tokens import PAD, equal, hashed

FULL: Final = -1
"""Result of :func:`intern` and :func:`number_of` if there is no room for a new item."""
BROKEN_TEXT, NO_ROOM, NO_PAIR = -1, -2, -3
"""Error codes, returned instead of a position in the text.

- BROKEN_TEXT: the text may not be JSON, so the slower reference reader must continue
- NO_ROOM: a dictionary is full and must grow
- NO_PAIR: the pair of category and name is new, and the dialect must label it first
"""

INTERNER: Final = np.dtype([(name, np.int64) for name in (
    "slots",  # address of a hash table with open addressing, whose items are numbers of strings
    "hashes",  # address of the hashes of all strings
    "ends", "bytes",  # addresses of two arrays; string i is ``bytes[ends[i]:ends[i + 1]]``
    "mask",  # number of slots less 1
    "capacity", "arena",  # number of strings, and number of bytes, for which there is room
    "count",  # number of strings
    "needed",  # length of a string that did not fit, or 0
)])  # fmt: skip
"""A dictionary that assigns numbers to distinct byte strings."""
InternerRecord = Annotated[Any, INTERNER]


class Interner:
    """Assigns numbers (0, 1, 2, …) to distinct byte strings. Owns the arrays that ``record`` (INTERNER) points to."""

    def __init__(self, record: Any, *slices: bytes, capacity: int = 1024, arena: int = 1 << 16) -> None:
        self.record = record
        self._allocate(capacity, arena)
        for text in slices:
            buffer = np.frombuffer(text + bytes(PAD), np.uint8)
            at = buffer.ctypes.data
            intern(record, at, 0, len(text), hashed(at, 0, len(text)))

    def __len__(self) -> int:
        return int(self.record["count"])

    @property
    def capacity(self) -> int:
        return int(self.record["capacity"])

    @property
    def full(self) -> bool:
        return bool(self.record["needed"])

    def slices(self, first: int = 0) -> list[bytes]:
        ends = self._ends[first : len(self) + 1].tolist()
        return [self._bytes[start:end].tobytes() for start, end in itertools.pairwise(ends)]

    def grow(self) -> None:
        """Double the room. Strings keep their numbers."""
        count, hashes, ends, texts = len(self), self._hashes, self._ends, self._bytes
        used = int(ends[count])
        self._allocate(2 * self.capacity, max(2 * len(texts), 2 * (used + int(self.record["needed"]) + PAD)))
        self._hashes[:count], self._ends[: count + 1] = hashes[:count], ends[: count + 1]
        self._bytes[:used] = texts[:used]
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


@compiled
def intern(interner: InternerRecord, buffer: int, start: int, end: int, key: np.uint64) -> int:
    """Return the id of string ``buffer[start:end]`` with hash ``key``, adding it if new; FULL if no room is left."""
    length = end - start
    slot = np.int64(key >> np.uint64(32)) & interner.mask
    number = np.int64(int32(interner.slots, slot))
    while number >= 0:
        begin = int64(interner.ends, number)
        same = uint64(interner.hashes, number) == key and int64(interner.ends, number + 1) - begin == length
        if same and equal(interner.bytes, begin, buffer, start, length):
            return int(number)
        slot = (slot + 1) & interner.mask
        number = np.int64(int32(interner.slots, slot))
    return int(_added(interner, buffer, start, length, key, slot))


@inlined
def slice_end(interner, number, buffer, start):  # type: ignore[no-untyped-def]
    """If the bytes of ``buffer`` from ``start`` on equal the stored string with this ``number``, return the position
    after them. Otherwise return -1."""
    begin = int64(interner.ends, number)
    length = int64(interner.ends, number + 1) - begin
    return start + length if equal(interner.bytes, begin, buffer, start, length) else np.int64(-1)


@compiled
def _added(interner, buffer, start, length, key, slot):  # type: ignore[no-untyped-def]
    number, begin = interner.count, int64(interner.ends, interner.count)
    if number >= interner.capacity or begin + length + PAD > interner.arena:
        interner.needed = max(length, 1)
        return np.int64(FULL)
    put_bytes(interner.bytes, begin, buffer, start, start + length)
    put_uint64(interner.hashes, number, key)
    put_int64(interner.ends, number + 1, begin + length)
    put_int32(interner.slots, slot, number)
    interner.count = number + 1
    return number


@compiled
def _fill(interner: InternerRecord) -> None:
    for number in range(interner.count):
        slot = np.int64(uint64(interner.hashes, number) >> np.uint64(32)) & interner.mask
        while int32(interner.slots, slot) >= 0:
            slot = (slot + 1) & interner.mask
        put_int32(interner.slots, slot, number)


LABELS: Final = (b"thread_name", b"process_name", b"process_labels")
"""Names of the metadata events that perfkit keeps. They have the first numbers in the dictionary of names."""
TOP_KEYS: Final = (b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args", b"id")
PH, CAT, NAME, PID, TID, TS, DUR, ARGS, ID = range(9)

# Actions for the arguments of events. INTEGER + i stores the value in integer column i. NOT_NEGATIVE + i does the same,
# but leaves events with negative numbers to the reference reader. COPIED + i stores the value there, and copies the
# argument to the others. TEXT + i stores the value in text column i.
REST, DROPPED, DROPPED_IF_EMPTY, OFFSET, STREAM_OF_DEVICE = 0, 1, 2, 3, 4
INTEGER, COPIED, NOT_NEGATIVE, TEXT = 16, 28, 40, 64

ON_DEVICE, SLOW_PAIR, UNKNOWN_PAIR = 1, 2, 128
"""Flags of a pair of category and name. ON_DEVICE: its events are device work. SLOW_PAIR: the reference reader must
read its events, not the scanner. UNKNOWN_PAIR: the dialect has not labelled the pair yet."""

CONTEXTS: Final = 16
"""The scanner remembers one order of keys for each value of ``kind % CONTEXTS``. CONTEXTS is a power of 2."""

AUX: Final = 3
"""Largest number of arguments that may identify the device of an event."""

COLUMNS: Final = np.dtype([(name, np.int64) for name in (
    "numbers",  # address of the integer columns, int64[column, row]
    "codes",  # address of the text columns, int32[column, row]
    "rest",  # address of the JSON text of the arguments that have no column
    "rest_ends",  # address of offsets: row i has the text ``rest[rest_ends[i]:rest_ends[i + 1]]``
    "slow",  # address of the SLOW_CELLS cells of each event that is left to the slower reference reader
    "link_ends",  # address of the LINK_CELLS cells of each end of a link that is kept
    "capacity",  # number of rows for which there is room
    "number_rows", "code_rows",  # number of integer columns, and number of text columns
    "rows",  # number of rows in use
    "text",  # number of bytes of ``rest`` in use
    "slow_rows", "link_end_rows",  # number of items of ``slow`` and of ``link_ends`` in use
    "recoded_rows",  # number of items of ``recoded`` in use
    "recoded",  # address of the rows whose arguments must be decoded and encoded again
    "serial",  # serial number of the current event
    "odd_text",  # whether the arguments of the current event must be decoded and encoded again
    "empty",  # number of arguments of the current event whose action is DROPPED_IF_EMPTY
    "used",  # whether a discarded event may have left values in the first unused row
    "links", "metadata", "blanks",  # number of flow events, of metadata events, and of empty objects that were skipped
)])  # fmt: skip
"""The columns that the scanner fills."""

SLOW_CELLS: Final = 7
"""Cells of an event that is left to the reference reader: its row, start and end, and ``links``, ``metadata``,
``blanks`` and ``link_end_rows`` before it."""
LINK_CELLS: Final = 6
"""Cells of an end of a link: number of its category, id, whether the link begins here, numbers of the process and the
thread in the dictionary ``tokens``, and time in ns."""

KEYS: Final = np.dtype([(name, np.int64) for name in ("slots", "keys", "mask", "capacity", "count")])
"""A dictionary that assigns numbers to distinct integers."""
KeysRecord = Annotated[Any, KEYS]

NO_PHASE, SPAN, FLOW, OTHER, INSTANT, METADATA, COUNTER = range(7)
"""Kinds of events, according to their ``ph``."""
OF_COUNTER: Final = 1 << 30
"""Is added to the number of the category in the pairs of counters, which have labels of their own."""

EVENT: Final = np.dtype([(name, np.int64) for name in (
    "category", "name", "process", "thread", "pair",  # numbers in dictionaries
    "kind",  # SPAN, FLOW, OTHER, INSTANT, METADATA, COUNTER or NO_PHASE
    "begins",  # whether a link begins with the event
    "named", "name_start", "name_end", "name_hash",  # whether there is a name, and where it is in the buffer
    "linked", "link",  # whether the id is an integer that is not negative, or a text, and the id (of a text, a hash)
    "text",  # end of the event's arguments in ``rest``
    "odd",  # whether the event is left to the slower reference reader
    "bare",  # whether the name does not end with a duration
    "coded",  # whether the name has escapes or bytes that are not ASCII
)])  # fmt: skip
"""The current event."""

MEMORY: Final = np.dtype(
    [(name, INTERNER) for name in ("tops", "arguments", "categories", "names", "tokens", "texts")]
    # A pair is a category and a name. A place is a device. A lane is a process, a thread and a place. An origin is a
    # pair and a lane.
    + [(name, KEYS) for name in ("pairs", "places", "lanes", "origins")]
    + [("event", EVENT)]
    + [(name, np.int64) for name in (
        "actions",  # address of an array with the action for each argument key
        "aux_of",  # address of an array: for each argument key, its index in the array ``aux``, or -1
        "seen_tops", "seen_arguments",  # addresses of arrays: for each key, the number of the last event that has it
        "next_tops", "next_arguments",  # addresses; for each key, the key that last followed it (see ``context_of``)
        "flags", "device_class",  # addresses of arrays: flags of each pair; number of its label, or -1 for the host
        "aux",  # address of the current event's arguments that identify its device
        "keys", "pairs_known",  # number of keys, and number of pairs, for which there is room
        "glued",  # whether names end with a duration
        "stream",  # index of ``stream`` in ARGUMENT_INTEGERS
        "empty_keys",  # number of argument keys whose action is DROPPED_IF_EMPTY
        "slow_names",  # the first 8 bytes of names whose events are left to the reference reader, or 0
        "link_categories",  # number of categories whose flow events are kept
        "last_category", "last_process", "last_thread",  # values of the previous event, because most events repeat them
    )]
)  # fmt: skip
"""All memory of a scanner: dictionaries of texts, dictionaries of integers, the current event, and other fields."""
ColumnsRecord = Annotated[Any, COLUMNS]
MemoryRecord = Annotated[Any, MEMORY]


class Keys:
    """Assigns numbers (0, 1, 2, …) to distinct integers. Owns the arrays that ``record`` (KEYS) points to."""

    def __init__(self, record: Any, *keys: int, capacity: int = 1024) -> None:
        self.record = record
        self._allocate(capacity)
        for key in keys:
            add_number(record, key)

    def __len__(self) -> int:
        return int(self.record["count"])

    @property
    def capacity(self) -> int:
        return int(self.record["capacity"])

    def values(self, first: int = 0) -> list[int]:
        return [int(key) for key in self._keys[first : len(self)]]

    def grow(self) -> None:
        keys = self.values()
        self._allocate(2 * self.capacity)
        for key in keys:
            add_number(self.record, key)

    def _allocate(self, capacity: int) -> None:
        self._slots = np.full(2 * capacity, -1, np.int32)
        self._keys = np.zeros(capacity, np.int64)
        addresses = (self._slots.ctypes.data, self._keys.ctypes.data)
        for name, value in zip(KEYS.names or (), (*addresses, 2 * capacity - 1, capacity, 0), strict=True):
            self.record[name] = value


def interners(memory: Any, link_categories: Sequence[bytes] = ()) -> dict[str, Interner]:
    """Return the string dictionaries of a MEMORY record. In categories, tokens and texts, 0 means "missing". The next
    categories are ``link_categories``."""
    first = {
        "tops": TOP_KEYS, "categories": (b"", *link_categories), "names": LABELS, "tokens": (b"null",),
        "texts": (b"null",),
    }  # fmt: skip
    return {
        name: Interner(memory[name], *first.get(name, ()))
        for name in MEMORY.names or () if MEMORY.fields and MEMORY.fields[name][0] == INTERNER
    }  # fmt: skip


@inlined
def number_of(table, key):  # type: ignore[no-untyped-def]
    """Return the number of the integer ``key`` in ``table``. Add a new ``key``, or return FULL if no room is left."""
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


@compiled
def add_number(table: KeysRecord, key: int) -> None:
    """Give the integer ``key`` a number in ``table``, in which there must be room."""
    number_of(table, key)
