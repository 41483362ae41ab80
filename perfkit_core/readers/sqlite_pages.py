"""Compiled reading of the integers in a table of an SQLite file, from its pages: https://www.sqlite.org/fileformat2.html

SQLite hands out one value after the other, which takes ten times as long. What is unusual or damaged is left to
SQLite: it reads the table, or says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms.addresses import load8
from perfkit_core.base.algorithms.arrays import IntArray, new_array
from perfkit_core.base.runtime.compiled import Out, compiled, inlined
from perfkit_core.base.runtime.primitives import byte

PAD: Final = 32
"""Number of bytes after the pages that may be read, because numbers are read before their ends are checked."""
_PAGE_SIZE: Final = slice(16, 18)
_RESERVED, _ENCODING, _UTF8 = 20, slice(56, 60), 1
_HEADER_BYTES: Final = 100
_INTERIOR, _LEAF = 5, 13
_MIN_OVERFLOW, _LEAST_ROW = 35, 6
_DEPTH: Final = 24
_UNREADABLE: Final = -1
_REAL: Final = 7
_NULL: Final = -1
"""Stands for null in the result."""
_ZERO, _NINE, _MOST_DIGITS = 0x30, 0x39, 19
_HALVES: Final = (np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0x00000000FFFFFFFF))


def integers(content: npt.NDArray[np.uint8], root: int, positions: Sequence[int], alias: int) -> IntArray | None:
    """Return columns of integers, shape (columns, rows), with -1 for null, or None if SQLite must read the table.

    ``content`` is the file, followed by PAD bytes. ``root`` is the first page of the table, ``positions`` are those of
    the columns, and ``alias`` is that of the column with the row id, or -1."""
    size = int.from_bytes(content[_PAGE_SIZE].tobytes(), "big")
    page_bytes = 1 << 16 if size == 1 else size
    if page_bytes < 512 or int.from_bytes(content[_ENCODING].tobytes(), "big") != _UTF8:
        return None
    slots = np.full(max(positions, default=0) + 1, -1, np.int64)
    slots[list(positions)] = np.arange(len(positions))
    pages, usable = (len(content) - PAD) // page_bytes, page_bytes - int(content[_RESERVED])
    stack, cells = new_array(2 * _DEPTH), new_array(0)
    for _ in range(2):  # first counts the rows
        room = len(cells) // max(len(positions), 1)
        rows = _table(content.ctypes.data, pages, page_bytes, usable, root, slots, alias, stack, cells, room)
        if rows == _UNREADABLE:
            return None
        cells = cells if room else new_array(rows * len(positions))
    return cells.reshape(len(positions), -1)


@inlined
def _unsigned(address, at, count):  # type: ignore[no-untyped-def]
    word = load8(address, at)
    for step in range(3):  # reverses the bytes
        bits = np.uint64(8 << step)
        word = ((word & _HALVES[step]) << bits) | ((word >> bits) & _HALVES[step])
    return np.int64(word >> np.uint64(64 - 8 * count))


@inlined
def _varint(address, at):  # type: ignore[no-untyped-def]
    """Return (position after the number, number)."""
    number = np.int64(0)
    for i in range(8):
        digit = np.int64(byte(address, at + i))
        number = (number << 7) | (digit & 0x7F)
        if digit < 0x80:
            return at + i + 1, number
    return at + 9, (number << 8) | np.int64(byte(address, at + 8))


@compiled
def _table(
    content: int, pages: int, page_bytes: int, usable: int, root: int, slots: IntArray, alias: int,
    stack: Out[IntArray], cells: Out[IntArray], room: int,
) -> int:  # fmt: skip
    """Walk the tree of a table, and fill the cells of ``room`` rows. Return the number of rows, or _UNREADABLE."""
    depth, visited, rows, first, last = 0, 0, 0, True, np.int64(0)
    stack[0], stack[1] = root, 0
    while depth >= 0:
        number, child = stack[2 * depth], stack[2 * depth + 1]
        if number < 1 or number > pages:
            return _UNREADABLE
        page = content + (number - 1) * page_bytes
        header = _HEADER_BYTES if number == 1 else 0
        count = _unsigned(page, header + 3, 2)
        visited += child == 0
        if visited > pages or header + 12 + 2 * count > usable:
            return _UNREADABLE
        if byte(page, header) == _INTERIOR:
            if child > count:
                depth -= 1
                continue
            at = header + 8 if child == count else _unsigned(page, header + 12 + 2 * child, 2)
            stack[2 * depth + 1] = child + 1
            depth += 1
            if at + 4 > usable or depth == _DEPTH:
                return _UNREADABLE
            stack[2 * depth], stack[2 * depth + 1] = _unsigned(page, at, 4), 0
            continue
        if byte(page, header) != _LEAF:
            return _UNREADABLE
        if header + 8 + _LEAST_ROW * count > usable:
            return _UNREADABLE
        rows += 0 if room else count
        for cell in range(count if room else 0):
            begin = _unsigned(page, header + 8 + 2 * cell, 2)
            if begin < header + 8 + 2 * count or begin + 4 > usable:
                return _UNREADABLE
            at, size = _varint(page, begin)
            at, row_id = _varint(page, at)
            if size < 1 or size > usable - _MIN_OVERFLOW or at + size > usable or not (first or row_id > last):
                return _UNREADABLE
            if rows >= room or not _record(page, at, size, row_id, slots, alias, cells, room, rows):
                return _UNREADABLE
            rows, last, first = rows + 1, row_id, False
        depth -= 1
    return rows


@compiled
def _record(page, begin, size, row_id, slots, alias, cells, room, row):  # type: ignore[no-untyped-def]
    """Store the cells of a row. Return whether it has all columns, and only integers in them."""
    at, header_bytes = _varint(page, begin)
    header_end = body = begin + header_bytes
    if header_bytes < 1 or header_bytes > size:
        return False
    position = 0
    while at < header_end:
        at, kind = _varint(page, at)
        text = kind >= 12
        count = (kind - 12) >> 1 if text else kind if kind <= 4 else 6 if kind == 5 else 8 if kind <= _REAL else 0
        if kind < 0 or 10 <= kind < 12 or count > size or body + count > begin + size:
            return False
        if position < len(slots) and slots[position] >= 0:
            value = np.int64(_NULL)
            if kind == 0:
                value = row_id if position == alias else value
            elif kind == 8 or kind == 9:
                value = np.int64(kind - 8)
            elif text:
                if kind & 1 == 0 or count == 0 or count > _MOST_DIGITS:
                    return False
                value = np.int64(0)
                for i in range(count):
                    digit = byte(page, body + i)
                    if digit < _ZERO or digit > _NINE:
                        return False
                    value = value * 10 + np.int64(digit - _ZERO)
                if value < 0:  # 2⁶³ or more
                    return False
            elif kind == _REAL:
                return False
            else:
                value = _unsigned(page, body, count)
                value = (value << (64 - 8 * count)) >> (64 - 8 * count)
            cells[slots[position] * room + row] = value
        body += count
        position += 1
    return at == header_end and body == begin + size and position >= len(slots)
