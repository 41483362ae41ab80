"""Gathered rows as a table of columns: as they were recorded, or in the order of time.

Rows of many stretches behind one another, column by column.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms.arrays import MISSING, OFFSETS_END, SMALL_BYTES, IntArray, allocate, constant, valid
from perfkit_core.algorithms.decimals import check_fits, span_ns
from perfkit_core.assembly.draft import by_time, texts_taken
from perfkit_core.readers.chrome.rows import (
    INTEGERS,
    NULL,
    ORIGIN_INTEGERS,
    ORIGIN_TEXTS,
    TEXTS,
    Origins,
    Rows,
    Vocabulary,
    encoded,
)
from perfkit_core.runtime import parallel

_COLUMNS: Final = (
    "start_ns", "dur_ns", *ORIGIN_INTEGERS, *INTEGERS[2:], *ORIGIN_TEXTS, *TEXTS, "args",
)  # fmt: skip

_Make = Callable[[], pa.Array | pa.ChunkedArray | None]


class RowTable:
    """Makes the columns of rows, and gives the memory of each one's source back when it is done."""

    def __init__(
        self, found: Rows, known: Origins, vocabularies: Mapping[str, Vocabulary], base_ns: int, in_order: bool
    ) -> None:
        """``base_ns`` is added to the starts. ``found`` is taken apart; with ``in_order`` by time. Raises SourceError
        where a start or an end does not fit 64 bits then."""
        self._rows, self._known, self._vocabularies = found, known, vocabularies
        if found.count:
            check_fits(base_ns + time for time in span_ns(found.integers["start_ns"], found.integers["dur_ns"]))
        if base_ns:
            found.integers["start_ns"] += base_ns
        self._order = by_time(found.integers["start_ns"], found.integers["dur_ns"]) if in_order else None
        self._scratch = threading.local()

    def table(self, compact: bool) -> pa.Table:
        """Every column. With ``compact``, dictionaries hold only what occurs."""
        columns = self._made({"args": self._args, **self._own(compact)})  # the largest first, while others are few
        columns |= self._made(self._shared(compact))
        return pa.table({name: columns[name] for name in _COLUMNS})

    def _made(self, makers: Mapping[str, _Make]) -> dict[str, pa.Array | pa.ChunkedArray]:
        """Several at once: numpy and Arrow work outside of Python's lock, and new memory takes longer than its use."""
        if self._rows.count < parallel.WORTH_ROWS:
            found = {name: make() for name, make in makers.items()}
        else:
            made = parallel.in_order(lambda make: make(), makers.values())
            found = dict(zip(makers, made, strict=True))
        return {name: self._nothing(name) if column is None else column for name, column in found.items()}

    def _nothing(self, name: str) -> pa.ChunkedArray:
        texts = name in ORIGIN_TEXTS or name in TEXTS
        kind = pa.dictionary(pa.int32(), pa.string()) if texts else pa.string() if name == "args" else pa.int64()
        return constant(None, kind, self._rows.count)

    def _own(self, compact: bool) -> dict[str, _Make]:
        """What each event says itself."""
        integers: dict[str, _Make] = {name: partial(self._integers, name) for name in INTEGERS}
        return integers | {name: partial(self._texts, name, compact) for name in TEXTS}

    def _shared(self, compact: bool) -> dict[str, _Make]:
        """What the origins say."""
        origin = self._ordered(self._rows.origin)
        used = self._known.used(origin) if compact else None
        integers: dict[str, _Make] = {name: partial(self._integers_shared, name, origin) for name in ORIGIN_INTEGERS}
        return integers | {name: partial(self._known.texts, name, origin, used) for name in ORIGIN_TEXTS}

    def _integers(self, name: str) -> pa.Array | None:
        values = self._rows.integers.pop(name, None)
        return None if values is None else _column(self._ordered(values))

    def _integers_shared(self, name: str, origin: npt.NDArray[Any]) -> pa.Array | None:
        values = self._known.integers(name, origin)
        return None if values is None else _column(values)

    def _texts(self, name: str, compact: bool) -> pa.Array | None:
        codes = self._rows.texts.pop(name, None)
        if codes is None:
            return None
        vocabulary = self._vocabularies[name]
        texts, codes = vocabulary.compact(codes) if compact else (vocabulary.texts(), codes)
        return encoded(self._ordered(codes), texts)

    def _args(self) -> pa.Array | pa.ChunkedArray | None:
        args, replaced = self._rows.args, self._rows.replaced
        self._rows.args, self._rows.replaced = None, {}
        if args is None and replaced:
            args = constant(None, pa.string(), self._rows.count)
        if args is None or (self._order is None and not replaced):
            return args
        return texts_taken(args, self._order, replaced)

    def _ordered(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """In place: memory that was touched before costs nothing."""
        if self._order is None:
            return values
        if not hasattr(self._scratch, "cells"):
            self._scratch.cells = allocate(len(values), np.int64)
        there = self._scratch.cells.view(values.dtype)[: len(values)]
        values[:] = np.take(values, self._order, out=there, mode="clip")
        return values


def _column(values: IntArray) -> pa.Array | None:
    """Integers as a column that shares their memory; None where nothing is known."""
    known = values != NULL
    nulls = len(values) - int(np.count_nonzero(known))
    if nulls and nulls == len(values):
        return None
    bits = None
    if nulls:
        bits = pa.py_buffer(np.packbits(known, bitorder="little"))
        values[~known] = MISSING
    return pa.Array.from_buffers(pa.int64(), len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))], nulls)


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
        return allocate(wanted // kind.itemsize, kind)
    except MemoryError:  # more at once than the system promises anybody
        return allocate(count + count // 8, kind)


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
        offsets = allocate(last - first + 1, np.int32)
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
