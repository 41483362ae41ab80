"""Which rows of a protobuf have the same text? Without making a Python object of each."""

from __future__ import annotations

import numpy as np

from perfkit_core.addresses import WORD, byte, inlined, load8
from perfkit_core.compiling import compiled_at_once


@compiled_at_once
def intern(data, offset, length, known):  # type: ignore[no-untyped-def]
    """The number of the text of each row (0 where it is not known), and the first row with each of them.

    ``data`` is the address of the bytes, in which the texts lie. A hash table with open slots; texts that hash alike
    are told apart by their words.
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
        hashed = _hash(data + offset[i], length[i])
        slot = hashed & np.uint64(size - 1)
        while slots[slot] >= 0:
            other = first[slots[slot]]
            alike = hashes[slots[slot]] == hashed and length[other] == length[i]
            if alike and _equal(data + offset[other], data + offset[i], length[i]):
                break
            slot = (slot + np.uint64(1)) & np.uint64(size - 1)
        if slots[slot] < 0:
            slots[slot] = count
            hashes[count] = hashed
            first[count] = i
            count += 1
        codes[i] = slots[slot]
    return codes, first[:count]


@inlined
def _hash(data, length):  # type: ignore[no-untyped-def]
    """Of the bytes from an address on, a word at a time; the multiplier is 2⁶⁴ ÷ the golden ratio."""
    value = np.uint64(length)
    if length < WORD:
        for k in range(length):
            value = _mixed(value, np.uint64(byte(data, k)))
        return value
    for at in range(0, length - WORD, WORD):
        value = _mixed(value, load8(data, at))
    return _mixed(value, load8(data, length - WORD))


@inlined
def _mixed(value, word):  # type: ignore[no-untyped-def]
    value = (value ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@inlined
def _equal(one, other, length):  # type: ignore[no-untyped-def]
    """Whether as many bytes are the same from two addresses on. The last word may lie over the one before it."""
    if length < WORD:
        for k in range(length):  # noqa: SIM110 - no generators in numba
            if byte(one, k) != byte(other, k):
                return False
        return True
    for at in range(0, length - WORD, WORD):
        if load8(one, at) != load8(other, at):
            return False
    return load8(one, length - WORD) == load8(other, length - WORD)
