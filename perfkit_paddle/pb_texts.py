"""Which rows of a protobuf have the same text? Without making a Python object of each."""

from __future__ import annotations

import numpy as np

from perfkit_core.compiling import compiled_at_once


@compiled_at_once
def intern(data, offset, length, known):  # type: ignore[no-untyped-def]
    """The number of the text of each row (0 where it is not known), and the first row with each of them.

    A hash table with open slots; texts that hash alike are told apart byte by byte.
    """
    size = 16
    while size < 2 * len(offset):
        size *= 2
    slots = np.full(size, -1, np.int32)
    hashes = np.empty(len(offset), np.uint64)
    first = np.empty(len(offset), np.int64)
    codes = np.zeros(len(offset), np.int32)
    count = 0
    for i in range(len(offset)):
        if not known[i]:
            continue
        hashed = _hash(data, np.uint64(offset[i]), np.uint64(length[i]))
        slot = hashed & np.uint64(size - 1)
        while slots[slot] >= 0:
            other = first[slots[slot]]
            alike = hashes[slots[slot]] == hashed and length[other] == length[i]
            if alike and _equal(data, np.uint64(offset[other]), np.uint64(offset[i]), np.uint64(length[i])):
                break
            slot = (slot + np.uint64(1)) & np.uint64(size - 1)
        if slots[slot] < 0:
            slots[slot] = count
            hashes[count] = hashed
            first[count] = i
            count += 1
        codes[i] = slots[slot]
    return codes, first[:count]


@compiled_at_once
def _hash(data, begin, length):  # type: ignore[no-untyped-def]
    """Eight bytes at a time; the multiplier is 2⁶⁴ ÷ the golden ratio. Unsigned, so that no index is negative."""
    value = length
    at = np.uint64(0)
    while at < length:
        word = np.uint64(0)
        for k in range(min(np.uint64(8), length - at)):
            word |= np.uint64(data[begin + at + np.uint64(k)]) << np.uint64(8 * k)
        value = (value ^ word) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(29)
        at += np.uint64(8)
    return value


@compiled_at_once
def _equal(data, one, other, length):  # type: ignore[no-untyped-def]
    for k in range(length):  # noqa: SIM110 - no generators in numba
        if data[one + np.uint64(k)] != data[other + np.uint64(k)]:
            return False
    return True
