"""Distinct byte slices, numbered as they come: the dictionaries of the scanner."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.readers.scanner.words import PAD, equal, hashed
from perfkit_core.runtime.addresses import (
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

FULL: Final = -1
"""What :func:`intern` returns when there is no room for a new slice."""

INTERNER: Final = np.dtype(
    [(name, np.int64) for name in ("slots", "hashes", "ends", "bytes", "mask", "capacity", "arena", "count", "wanted")]
)
"""The first four are addresses. Slice i is ``bytes[ends[i]:ends[i + 1]]``; ``slots`` is an open hash table of numbers.
``wanted`` is the length of the last slice that found no room."""


class Interner:
    """Owns the memory of one INTERNER record, which stands in ``record``."""

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
        """How many slices there is room for."""
        return int(self.record["capacity"])

    @property
    def full(self) -> bool:
        """Whether the last slice found no room."""
        return bool(self.record["wanted"])

    def slices(self, first: int = 0) -> list[bytes]:
        """The slices from number ``first`` on."""
        ends = self._ends[first : len(self) + 1].tolist()
        return [self._bytes[start:end].tobytes() for start, end in itertools.pairwise(ends)]

    def grow(self) -> None:
        """Room for as many slices again, under the same numbers."""
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
    """Number of the slice from ``start`` to ``end`` with hash ``key``; FULL when it is new and there is no room."""
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
def found(one, number, buffer, start):  # type: ignore[no-untyped-def]
    """End of slice ``number`` if it stands at ``start``, else -1; no slice holds a zero byte."""
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
