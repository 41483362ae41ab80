"""Conversion of collected rows to tables, in the order of the source or sorted by time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms import arrays
from perfkit_core.base.algorithms.decimals import check_fits, span_ns
from perfkit_core.base.runtime import parallel
from perfkit_core.base.system import machine
from perfkit_core.readers.chrome.rows import (
    ARGUMENT_TEXTS,
    INTEGERS,
    NULL,
    ORIGIN_INTEGERS,
    ORIGIN_TEXTS,
    Origins,
    Rows,
    Vocabulary,
    encoded,
    validity,
)
from perfkit_core.trace.assembly.draft import by_time, texts_taken

_TABLE_BYTES: Final = 64
"""Memory of a row that the conversion needs in addition: the dictionary columns, and the order of the rows."""
_COLUMNS: Final = (
    "start_ns", "dur_ns", *ORIGIN_INTEGERS, *INTEGERS[2:], *ORIGIN_TEXTS, *ARGUMENT_TEXTS, "args",
)  # fmt: skip


class RowTable:
    """Converts rows to columns, one column at a time, and frees the memory of the rows along the way."""

    def __init__(
        self, rows: Rows, origins: Origins, vocabularies: Mapping[str, Vocabulary], base_ns: int, in_order: bool
    ) -> None:
        """Take over ``rows``, which the caller must not use afterwards. Add ``base_ns`` to the starts of the rows, and
        with ``in_order``, sort them by time. Raises SourceError if a start or an end does not fit in 64 bits."""
        self._rows, self._origins, self._vocabularies = rows, origins, vocabularies
        if rows.count:
            check_fits(base_ns + time for time in span_ns(rows.integers["start_ns"], rows.integers["dur_ns"]))
        if base_ns:
            rows.integers["start_ns"] += base_ns
        self._order = by_time(rows.integers["start_ns"], rows.integers["dur_ns"]) if in_order else None
        self._scratch = threading.local()

    def table(self, compact: bool) -> pa.Table:
        """Return all columns. With ``compact``, dictionaries contain only the values that occur."""
        machine.require(_TABLE_BYTES * self._rows.count, "the event table")
        threads = parallel.threads() if self._rows.count >= parallel.WORTH_ROWS else 1
        # Convert the largest column first, so that the other threads do not wait for it at the end.
        names: tuple[str, ...] = ("args", *INTEGERS, *ARGUMENT_TEXTS)
        row_columns = parallel.in_order(partial(self._own_column, compact), names, threads)
        columns = dict(zip(names, row_columns, strict=True))
        origin = self._ordered(self._rows.origin)
        used = self._origins.used(origin) if compact else None
        self._origins.fill()
        names = (*ORIGIN_INTEGERS, *ORIGIN_TEXTS)
        shared = parallel.in_order(partial(self._origin_column, origin, used), names, threads)
        columns |= zip(names, shared, strict=True)
        texts = pa.dictionary(pa.int32(), pa.string())
        types = {"args": pa.string(), **dict.fromkeys((*ORIGIN_TEXTS, *ARGUMENT_TEXTS), texts)}
        empty = {
            name: arrays.constant(None, types.get(name, pa.int64()), self._rows.count)
            for name, cells in columns.items() if cells is None
        }  # fmt: skip
        return pa.table({name: empty.get(name, columns[name]) for name in _COLUMNS})

    def _own_column(self, compact: bool, name: str) -> pa.Array | pa.ChunkedArray | None:
        if name in INTEGERS:
            values = self._rows.integers.pop(name, None)
            return None if values is None else _nullable(self._ordered(values))
        if name in ARGUMENT_TEXTS:
            codes = self._rows.texts.pop(name, None)
            if codes is None:
                return None
            vocabulary = self._vocabularies[name]
            texts, codes = vocabulary.compact(codes) if compact else (vocabulary.texts(), codes)
            return encoded(self._ordered(codes), texts)
        args, replaced = self._rows.args, self._rows.replaced
        self._rows.args, self._rows.replaced = None, {}
        if args is None and replaced:
            args = arrays.constant(None, pa.string(), self._rows.count)
        if args is None or (self._order is None and not replaced):
            return args
        return texts_taken(args, self._order, replaced)

    def _origin_column(self, origin: npt.NDArray[Any], used: arrays.BoolArray | None, name: str) -> pa.Array | None:
        if name in ORIGIN_TEXTS:
            return self._origins.texts(name, origin, used)
        values = self._origins.integers(name, origin)
        return None if values is None else _nullable(values)

    def _ordered(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sort ``values`` in place by the time of their events, and return them. A new array would be slower."""
        if self._order is None:
            return values
        if not hasattr(self._scratch, "cells"):
            self._scratch.cells = arrays.allocate(len(values), np.int64)
        cells = self._scratch.cells.view(values.dtype)[: len(values)]
        values[:] = np.take(values, self._order, out=cells, mode="clip")  # the default mode would copy ``out``
        return values


def _nullable(values: arrays.IntArray) -> pa.Array | None:
    mask = values != NULL
    nulls = len(values) - int(np.count_nonzero(mask))
    if nulls and nulls == len(values):
        return None
    if nulls:
        values[~mask] = arrays.MISSING
    cells = [validity(mask), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.int64(), len(values), cells, nulls)


_MIN_LARGE_BYTES: Final = 1 << 26
"""A column that outgrows SMALL_BYTES gets at least this much memory."""
_NO_TEXT: Final = -1


class Gathering:
    """Collects rows in the order of the source, and stores them as columns. :meth:`drain` returns them."""

    def __init__(self) -> None:
        self.count = 0
        self._origin = _Column(np.int32, -1)
        self._integers: dict[str, _Column] = {}
        self._texts: dict[str, _Column] = {}
        self._args, self._lengths = _Column(np.uint8, 0), _Column(np.int32, _NO_TEXT)
        self._replaced: dict[int, str | None] = {}

    def add(self, part: Rows) -> None:
        at = self.count
        self._origin.put(at, part.origin)
        for name, values in part.integers.items():
            self._integers.setdefault(name, _Column(np.int64, NULL)).put(at, values)
        for name, codes in part.texts.items():
            self._texts.setdefault(name, _Column(np.int32, -1)).put(at, codes)
        if part.args is not None:
            mask = arrays.valid(part.args)
            text, lengths = _cells(part.args)
            if lengths[~mask].any():  # in Arrow, the memory of a null may contain text
                text, lengths = _cells(part.args.fill_null(""))
            lengths[~mask] = _NO_TEXT
            self._args.put(self._args.count, text)
            self._lengths.put(at, lengths)
        self._replaced.update((at + row, other) for row, other in part.replaced.items())
        self.count += part.count

    def drain(self) -> Rows:
        """Return all rows, and remove them."""
        count = self.count
        integers, texts = (
            {name: column.cells(count) for name, column in columns.items()} for columns in (self._integers, self._texts)
        )
        for name in ("start_ns", "dur_ns"):
            integers.setdefault(name, np.empty(0, np.int64))
        args = None
        if self._lengths.count or self._replaced:
            args = _strings(self._args.cells(), self._lengths.cells(count))
        rows = Rows(count, self._origin.cells(count), integers, texts, args, self._replaced)
        self.__init__()  # type: ignore[misc]
        return rows


class _Column:
    """An array that grows at its end. Cells that are skipped are set to ``missing``."""

    def __init__(self, kind: Any, missing: int) -> None:
        self.count = 0
        self._missing = missing
        self._cells: npt.NDArray[Any] = np.empty(0, kind)

    def put(self, at: int, values: npt.NDArray[Any]) -> None:
        end = at + len(values)
        if end > len(self._cells):
            kind = self._cells.dtype
            size = end * kind.itemsize
            machine.require(size, "the columns of the events")
            room = 2 * size if size <= arrays.SMALL_BYTES else max(4 * size, _MIN_LARGE_BYTES)
            try:
                cells = arrays.allocate(room // kind.itemsize, kind)
            except MemoryError:  # the system may refuse to overcommit memory
                cells = arrays.allocate(end + end // 8, kind)
            cells[: self.count] = self._cells[: self.count]
            self._cells = cells
        self._cells[self.count : at] = self._missing
        self._cells[at:end] = values
        self.count = end

    def cells(self, count: int = 0) -> npt.NDArray[Any]:
        """Return the used cells, at least ``count``."""
        self.put(max(count, self.count), self._cells[:0])
        return self._cells[: self.count]


def _cells(args: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, ends, text = args.buffers()
    ends = np.frombuffer(ends, np.int32)[args.offset : args.offset + len(args) + 1]
    cells = np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8)
    return cells[ends[0] : ends[-1]], np.diff(ends)


def _strings(text: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int32]) -> pa.ChunkedArray:
    """Return the texts as an Arrow array that shares the memory of ``text``. The array has several chunks if the text
    is too long for one. Overwrites ``lengths``."""
    mask = lengths != _NO_TEXT
    np.maximum(lengths, 0, out=lengths)
    pieces: list[pa.Array] = []
    first, begin = 0, 0
    while first < len(lengths) or not pieces:
        last = len(lengths)
        if len(text) - begin > arrays.OFFSETS_END:  # take as many rows as fit one array, at least one
            ends = np.cumsum(lengths[first:], dtype=np.int64)
            last = first + max(int(np.searchsorted(ends, arrays.OFFSETS_END, side="right")), 1)
        offsets = arrays.allocate(last - first + 1, np.int32)
        offsets[0] = 0
        np.cumsum(lengths[first:last], out=offsets[1:])
        end = begin + int(offsets[-1])
        buffers = [validity(mask[first:last]), pa.py_buffer(offsets), pa.py_buffer(text[begin:end])]
        pieces.append(pa.Array.from_buffers(pa.string(), last - first, buffers))
        first, begin = last, end
    return pa.chunked_array(pieces, pa.string())
