"""Tables of a scanned protobuf. All columns are integers. A text has two columns: its position in the file and its
length. Texts are decoded on demand, and equal texts only once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms.addresses import WORD, load8
from perfkit_core.base.algorithms.arrays import BoolArray, Int32Array, IntArray
from perfkit_core.base.runtime.compiled import Out, compiled, inlined
from perfkit_core.base.runtime.primitives import byte
from perfkit_paddle.names import stack_text

OWNER: Final = "owner"
"""First column of every table: the row of the enclosing message, in the table of that message."""
MISSING: Final = -(2**63)
"""Value of a cell if the file does not contain the field."""


def intern(data: int, offset: IntArray, length: IntArray, present: BoolArray) -> tuple[Int32Array, IntArray]:
    """Number the distinct texts. Return the number of each row's text, and the first row of each distinct text. A row
    without a text (``present`` is false) gets the number 0. ``data`` is the address of the texts' bytes."""
    slots = np.full(max(16, 2 << (len(offset) - 1).bit_length()), -1, np.int32)
    hashes, first = np.empty((2, len(offset)), np.int64)
    codes = np.zeros(len(offset), np.int32)
    count = _intern(data, offset, length, present, slots, hashes, first, codes)
    return codes, first[:count]


@compiled
def _intern(
    data: int, offset: IntArray, length: IntArray, present: BoolArray,
    slots: Out[Int32Array], hashes: Out[IntArray], first: Out[IntArray], codes: Out[Int32Array],
) -> int:  # fmt: skip
    size, count = len(slots), 0
    for i in range(len(offset)):
        if not present[i]:
            continue
        hashed = _hash(data + offset[i], length[i])
        slot = hashed & np.uint64(size - 1)
        while slots[slot] >= 0:
            other = first[slots[slot]]
            same_hash = np.uint64(hashes[slots[slot]]) == hashed and length[other] == length[i]
            if same_hash and _equal(data + offset[other], data + offset[i], length[i]):
                break
            slot = (slot + np.uint64(1)) & np.uint64(size - 1)
        if slots[slot] < 0:
            slots[slot] = count
            hashes[count] = np.int64(hashed)
            first[count] = i
            count += 1
        codes[i] = slots[slot]
    return count


@inlined
def _hash(data, length):  # type: ignore[no-untyped-def]
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
    value = (value ^ word) * np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ ÷ golden ratio
    return value ^ (value >> np.uint64(29))


@inlined
def _equal(first, second, length):  # type: ignore[no-untyped-def]
    if length < WORD:
        for k in range(length):  # noqa: SIM110 - no generators in numba
            if byte(first, k) != byte(second, k):
                return False
        return True
    for at in range(0, length - WORD, WORD):
        if load8(first, at) != load8(second, at):
            return False
    return load8(first, length - WORD) == load8(second, length - WORD)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a table. ``data`` is the file. ``cells`` has shape (columns, rows); absent fields are MISSING."""

    data: npt.NDArray[np.uint8]
    cells: IntArray
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.cells.shape[1])

    def __getitem__(self, column: str) -> IntArray:
        values: IntArray = self.cells[self.columns.index(column)]
        return values

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """Return a table with the given rows (numbers or a mask). For a mask of adjacent rows, no cells are copied."""
        if rows.dtype == np.bool_ and rows.any():
            first, last = int(rows.argmax()), len(rows) - int(rows[::-1].argmax())
            if rows[first:last].all():
                return Table(self.data, self.cells[:, first:last], self.columns)
        return Table(self.data, self.cells[:, rows], self.columns)

    def present(self, column: str) -> npt.NDArray[np.bool_]:
        return np.asarray(self[column] != MISSING)

    def integers(self, column: str) -> pa.Array:
        """Return a column as int64, null where a cell is missing. The column is not copied if no cell is missing."""
        present = self.present(column)
        return pa.array(self[column], mask=None if present.all() else ~present)

    def texts(self, column: str) -> pa.DictionaryArray:
        """Return a dictionary-encoded text column, null where a text is missing. Invalid UTF-8 is replaced."""
        offset, length = self[column], np.maximum(self[f"{column}.length"], 0)
        present = self.present(column)
        codes, first = intern(self.data.ctypes.data, offset, length, present)
        values = [self.data[offset[row] : offset[row] + length[row]].tobytes() for row in first]
        texts = pa.array([value.decode("utf-8", "replace") for value in values], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=None if present.all() else ~present), texts)

    def content(self, column: str, row: int) -> bytes:
        start, length = int(self[column][row]), int(self[f"{column}.length"][row])
        return self.data[start : start + length].tobytes() if start >= 0 else b""


def operator_inputs(table: Table, row: int) -> dict[str, str | None]:
    """Return the inputs of an operator as ``shapes``, ``stack`` and ``args``, or None for missing ones. Paddle records
    them only for old static graphs. Damaged content is skipped."""

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
    """Return the values of each input slot of an operator. In ``raw``, each field 1 holds the name of a slot, and each
    field 2 the values of one slot, in the same order."""
    fields = [(number, value) for number, value in _fields(raw) if isinstance(value, bytes)]
    keys = [value.decode("utf-8", "replace") for number, value in fields if number == 1]
    lists = [value for number, value in fields if number == 2]
    items = [[read(item) for _, item in _fields(value) if isinstance(item, bytes)] for value in lists]
    return dict(zip(keys, items, strict=False))


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field. Stop at a truncated field, or one that is neither integer nor text."""
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
    """Return a base-128 number and the position after it. The position is -1 if the number is truncated."""
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
