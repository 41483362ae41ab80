"""Rows of many stretches behind one another, column by column."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.arrays import OFFSETS_END, valid
from perfkit_core.memory import SMALL_BYTES, column
from perfkit_core.sources.portion import NULL
from perfkit_core.sources.rows import Rows

_ROOM_BYTES: Final = 1 << 26
"""What a column is given that is not small any more, and four times what it needs later."""
_NO_TEXT: Final = -1


class Gathering:
    """Takes rows in the order of the source; :meth:`taken` hands them out."""

    def __init__(self) -> None:
        self.count = 0
        self._origin = _Column(np.int32, -1)
        self._integers: dict[str, _Column] = {}
        self._texts: dict[str, _Column] = {}
        self._args, self._lengths = _Column(np.uint8, 0), _Column(np.int32, _NO_TEXT)
        self._replaced: dict[int, str | None] = {}

    def add(self, part: Rows) -> None:
        """Put the rows behind those that are here. They are copied."""
        at = self.count
        self._origin.put(at, part.origin)
        for name, values in part.integers.items():
            self._integers.setdefault(name, _Column(np.int64, NULL)).put(at, values)
        for name, codes in part.texts.items():
            self._texts.setdefault(name, _Column(np.int32, -1)).put(at, codes)
        if part.args is not None:
            text, lengths = _text(part.args)
            self._args.put(self._args.count, text)
            self._lengths.put(at, lengths)
        for row, other in part.replaced.items():
            self._replaced[at + row] = other
        self.count += part.count

    def taken(self) -> Rows:
        """All rows; they are the taker's then."""
        count = self.count
        integers, texts = (
            {name: cells.taken(count) for name, cells in held.items()} for held in (self._integers, self._texts)
        )
        for name in ("start_ns", "dur_ns"):
            integers.setdefault(name, np.empty(0, np.int64))
        told = self._lengths.count or self._replaced
        args = _strings(self._args.taken(), self._lengths.taken(count)) if told else None
        found = Rows(count, self._origin.taken(count), integers, texts, args, self._replaced)
        self.__init__()  # type: ignore[misc]
        return found


class _Column:
    """Grows at its end; cells that are skipped are ``missing``."""

    def __init__(self, kind: Any, missing: int) -> None:
        self.count = 0
        self._missing = missing
        self._cells: npt.NDArray[Any] = np.empty(0, kind)

    def put(self, at: int, values: npt.NDArray[Any]) -> None:
        end = at + len(values)
        if end > len(self._cells):
            cells = _room(end, self._cells.dtype)
            cells[: self.count] = self._cells[: self.count]
            self._cells = cells
        self._cells[self.count : at] = self._missing
        self._cells[at:end] = values
        self.count = end

    def taken(self, count: int = 0) -> npt.NDArray[Any]:
        """The cells, ``count`` at least."""
        self.put(max(count, self.count), self._cells[:0])
        return self._cells[: self.count]


def _room(count: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Room for ``count`` cells and more."""
    size = count * kind.itemsize
    wanted = 2 * size if size <= SMALL_BYTES else max(4 * size, _ROOM_BYTES)
    try:
        return column(wanted // kind.itemsize, kind)
    except MemoryError:  # more at once than the system promises anybody
        return column(count + count // 8, kind)


def _text(args: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of strings, and the length of each, _NO_TEXT where it is null."""
    there = valid(args)
    text, lengths = _cells(args)
    if lengths[~there].any():  # Arrow lets nulls have text
        text, lengths = _cells(args.fill_null(""))
    lengths[~there] = _NO_TEXT
    return text, lengths


def _cells(args: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, ends, text = args.buffers()
    ends = np.frombuffer(ends, np.int32)[args.offset : args.offset + len(args) + 1]
    cells = np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8)
    return cells[ends[0] : ends[-1]], np.diff(ends)


def _strings(text: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32]) -> pa.ChunkedArray:
    """Texts that share the memory of ``text``, in as many pieces as Arrow needs. ``lengths`` serve as scratch."""
    known = lengths != _NO_TEXT
    np.maximum(lengths, 0, out=lengths)
    pieces: list[pa.Array] = []
    first, begin = 0, 0
    while first < len(lengths) or not pieces:
        last = _most(lengths, first) if len(text) - begin > OFFSETS_END else len(lengths)
        offsets = column(last - first + 1, np.int32)
        offsets[0] = 0
        np.cumsum(lengths[first:last], out=offsets[1:])
        here = known[first:last]
        bits = None if here.all() else pa.py_buffer(np.packbits(here, bitorder="little"))
        end = begin + int(offsets[-1])
        buffers = [bits, pa.py_buffer(offsets), pa.py_buffer(text[begin:end])]
        pieces.append(pa.Array.from_buffers(pa.string(), last - first, buffers))
        first, begin = last, end
    return pa.chunked_array(pieces, pa.string())


def _most(lengths: npt.NDArray[np.int32], first: int) -> int:
    """Behind the last row that one array of texts from ``first`` on has room for, one row at least."""
    ends = np.cumsum(lengths[first:], dtype=np.int64)
    return first + max(int(np.searchsorted(ends, OFFSETS_END, side="right")), 1)
