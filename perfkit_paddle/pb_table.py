"""Rows that a scan of a protobuf found, as integer columns; texts are looked up in the bytes when asked for.

Which rows of a protobuf have the same text? Without making a Python object of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms.addresses import WORD, byte, inlined, load8
from perfkit_core.runtime.compile import compiled_at_once
from perfkit_paddle.pb_schema import MISSING


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


Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind of message: int64 ``cells``, shape (columns, rows), MISSING where absent."""

    data: Bytes
    cells: IntArray
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.cells.shape[1])

    def __getitem__(self, column: str) -> IntArray:
        """One column, shape (rows,)."""
        values: IntArray = self.cells[self.columns.index(column)]
        return values

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """Some of the rows: numbers, or a mask. They share the memory where they stand together."""
        return Table(self.data, self.cells[:, _together(rows) or rows], self.columns)

    def known(self, column: str) -> npt.NDArray[np.bool_]:
        """True where the column was in the file."""
        return np.asarray(self[column] != MISSING)

    def integers(self, column: str) -> pa.Array:
        """A column as nullable int64; it shares the memory where every cell is known."""
        known = self.known(column)
        return pa.array(self[column], mask=None if known.all() else ~known)

    def floats(self, column: str) -> npt.NDArray[np.float32]:
        """A float column; NaN where absent."""
        bits = np.where(self.known(column), self[column], 0x7FC00000)
        return np.asarray(bits.astype(np.uint32).view(np.float32))

    def texts(self, column: str) -> pa.DictionaryArray:
        """A text column, dictionary encoded; bytes that are not UTF-8 are replaced; null where absent."""
        offset, length = self[column], np.maximum(self[f"{column}.length"], 0)
        known = self.known(column)
        codes, first = intern(self.data.ctypes.data, offset, length, known)
        values = [self.data[offset[row] : offset[row] + length[row]].tobytes() for row in first]
        texts = pa.array([value.decode("utf-8", "replace") for value in values], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=None if known.all() else ~known), texts)


def _together(rows: npt.NDArray[Any]) -> slice | None:
    """The rows of a mask as a slice; None where others stand between them, or for numbers."""
    if rows.dtype != np.bool_ or not rows.any():
        return None
    first, last = int(rows.argmax()), len(rows) - int(rows[::-1].argmax())
    return slice(first, last) if rows[first:last].all() else None
