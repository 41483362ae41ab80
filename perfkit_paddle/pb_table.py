"""Tables of a scanned protobuf: rows as integer columns, with texts and nested lists read from the bytes on demand.
Texts are interned without a Python object for each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms.addresses import WORD, byte, inlined, load8
from perfkit_core.runtime.compile import compiled_at_once
from perfkit_paddle.names import stack_text

OWNER: Final = "owner"
"""First column of every table: the row of the enclosing message."""
MISSING: Final = -(2**63)
"""Content of a cell that is absent from the file."""


@compiled_at_once
def intern(data, offset, length, known):  # type: ignore[no-untyped-def]
    """Return the number of the text of each row (0 if not ``known``), and the first row with each text. ``data`` is the
    address of the bytes that hold the texts. A hash table with open addressing; texts with equal hashes are
    distinguished by their words."""
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
    """Return the hash of the bytes from an address, a word at a time; the multiplier is 2⁶⁴ ÷ the golden ratio."""
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
    """Rows of one kind of message: int64 ``cells``, shape (columns, rows), MISSING if absent."""

    data: Bytes
    cells: IntArray
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.cells.shape[1])

    def __getitem__(self, column: str) -> IntArray:
        values: IntArray = self.cells[self.columns.index(column)]
        return values

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """Return some of the rows, given as numbers or a mask. Adjacent rows of a mask share the memory."""
        if rows.dtype == np.bool_ and rows.any():
            first, last = int(rows.argmax()), len(rows) - int(rows[::-1].argmax())
            if rows[first:last].all():
                return Table(self.data, self.cells[:, first:last], self.columns)
        return Table(self.data, self.cells[:, rows], self.columns)

    def known(self, column: str) -> npt.NDArray[np.bool_]:
        return np.asarray(self[column] != MISSING)

    def integers(self, column: str) -> pa.Array:
        """Return a column as nullable int64, without a copy if no cell is missing."""
        known = self.known(column)
        return pa.array(self[column], mask=None if known.all() else ~known)

    def texts(self, column: str) -> pa.DictionaryArray:
        """Return a text column, dictionary encoded; bytes that are not UTF-8 are replaced; null if absent."""
        offset, length = self[column], np.maximum(self[f"{column}.length"], 0)
        known = self.known(column)
        codes, first = intern(self.data.ctypes.data, offset, length, known)
        values = [self.data[offset[row] : offset[row] + length[row]].tobytes() for row in first]
        texts = pa.array([value.decode("utf-8", "replace") for value in values], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=None if known.all() else ~known), texts)

    def content(self, column: str, row: int) -> bytes:
        start, length = int(self[column][row]), int(self[f"{column}.length"][row])
        return self.data[start : start + length].tobytes() if start >= 0 else b""


def operator_inputs(table: Table, row: int) -> dict[str, str | None]:
    """Return the columns shapes, stack and args (slots and variable types) of a row of operator inputs. Paddle records
    them only for the old static graph. Damaged content is skipped."""

    def shape(raw: bytes) -> list[int]:
        return [value for number, value in _fields(raw) if number == 1 and isinstance(value, int)]

    shapes = _by_slot(table.content("shapes", row), shape)
    types = _by_slot(table.content("dtypes", row), lambda raw: raw.decode("utf-8", "replace"))
    in_slot_order = [shape for slot in shapes.values() for shape in slot]
    slots = {"input_slots": {slot: len(items) for slot, items in shapes.items()}, "input_types": types}
    args = {key: value for key, value in slots.items() if value}
    return {
        "shapes": msgspec.json.encode(in_slot_order).decode() if in_slot_order else None,
        "stack": stack_text(table.content("stack", row).decode("utf-8", "replace")),
        "args": msgspec.json.encode(args).decode() if args else None,
    }


def _by_slot(raw: bytes, read: Any) -> dict[str, list[Any]]:
    """Read a message of repeated keys (1) and as many lists (2) of items (1)."""
    fields = [(number, value) for number, value in _fields(raw) if isinstance(value, bytes)]
    keys = [value.decode("utf-8", "replace") for number, value in fields if number == 1]
    lists = [value for number, value in fields if number == 2]
    items = [[read(item) for _, item in _fields(value) if isinstance(item, bytes)] for value in lists]
    return dict(zip(keys, items, strict=False))


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield field number and value of each number or text, up to the first field of another type or truncated."""
    position = 0
    while position < len(raw):
        tag, position = _number(raw, position)
        value, position = _number(raw, position)
        if position < 0 or tag & 7 not in (0, 2):
            return
        if tag & 7 == 0:
            yield tag >> 3, value
            continue
        if position + value > len(raw):
            return
        yield tag >> 3, raw[position : position + value]
        position += value


def _number(raw: bytes, position: int) -> tuple[int, int]:
    """Return a base-128 number and the position after it, -1 if truncated."""
    value = 0
    for shift in range(0, 70, 7):
        if not 0 <= position < len(raw):
            return 0, -1
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, -1
