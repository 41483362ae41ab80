"""Between Arrow's columns and numpy's arrays: nulls as a number and back, dictionaries, columns of one value."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.model import schema
from perfkit_core.runtime import buffers

NO_ROW: Final = -1

IntArray = npt.NDArray[np.int64]

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Codes:
    """A dictionary-encoded column: ``codes[i]`` indexes ``values``, -1 is null."""

    codes: npt.NDArray[np.int32]
    values: list[str]

    def rows(self, *wanted: str) -> BoolArray:
        """True where the column holds one of ``wanted``."""
        return self.lookup(np.array([value in wanted for value in self.values], dtype=np.bool_), False)

    def lookup(self, per_value: npt.NDArray[Any], missing: Any) -> npt.NDArray[Any]:
        """Spread one item a distinct value over the rows; ``missing`` where the row is null. Raises ValueError where
        the items are not as many as the values."""
        if len(per_value) != len(self.values):
            raise ValueError(f"{len(per_value)} items for {len(self.values)} values")
        table = np.append(np.asarray(per_value), np.asarray([missing], dtype=np.asarray(per_value).dtype))
        return spread(table, self.codes)


MISSING: Final = -1
"""What stands for a null where integers are read as an array, unless somebody asks for another number."""
OFFSETS_END: Final = 2**31 - 1
"""Most bytes of text that one Arrow string array holds."""
BLOCK: Final = 1 << 16
"""Rows that columns of one repeated value hold in memory, however long they are, and that are looked up at once."""


def joined(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece, with one dictionary; not copied where all but one piece are empty."""
    filled = [chunk for chunk in column.chunks if len(chunk)] or column.chunks[:1]
    if len(filled) == 1:
        return filled[0]
    return pa.concat_arrays(column.unify_dictionaries().chunks or [pa.array([], column.type)])


def picked(column: pa.ChunkedArray, rows: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Some rows of a column, ascending, in one piece. Arrow's own ``take`` joins all pieces of texts for that."""
    ends = np.cumsum([len(piece) for piece in column.chunks])
    cuts = np.searchsorted(rows, np.append(0, ends)).tolist()
    starts = (ends - [len(piece) for piece in column.chunks]).tolist()
    found = [
        piece.take(pa.array(rows[first:last] - start))
        for piece, start, first, last in zip(column.chunks, starts, cuts[:-1], cuts[1:], strict=True)
        if first < last
    ]
    return joined(pa.chunked_array(found, column.type))


def constant(value: int | None, of_type: pa.DataType, count: int) -> pa.ChunkedArray:
    """``count`` times the same value (None: null), which takes no more memory than a few thousand of it."""
    whole, rest = divmod(count, BLOCK)
    block = _block(value, of_type)
    return pa.chunked_array([block] * whole + ([block.slice(0, rest)] if rest else []), of_type)


@functools.lru_cache(16)
def _block(value: int | None, of_type: pa.DataType) -> pa.Array:
    return pa.nulls(BLOCK, of_type) if value is None else pa.repeat(pa.scalar(value, of_type), BLOCK)


def nullable(values: np.ndarray[Any, np.dtype[Any]]) -> pa.ChunkedArray:
    """Integers as a column, negative ones null. Shares the memory of ``values``."""
    known = values >= 0
    count, of_type = len(values), pa.from_numpy_dtype(values.dtype)
    nulls = count - int(np.count_nonzero(known))
    if nulls == count:
        return constant(None, of_type, count)
    bits = pa.py_buffer(np.packbits(known, bitorder="little")) if nulls else None
    cells = pa.py_buffer(np.ascontiguousarray(values))
    return pa.chunked_array([pa.Array.from_buffers(of_type, count, [bits, cells], nulls)])


def texts(codes: np.ndarray[Any, np.dtype[np.int32]], values: Sequence[str]) -> pa.ChunkedArray:
    """A text column of codes that index ``values``, negative ones null. Shares the memory of ``codes``."""
    of_type = schema.SCHEMA.field("name").type
    indices = nullable(codes)
    if indices.null_count == len(codes):
        return constant(None, of_type, len(codes))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices.chunk(0), pa.array(values, pa.string()))], of_type)


def spread(table: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The cells of ``table`` at these numbers (negative ones: from its end), shape (numbers,). There may be no others.

    Block by block: numpy makes 64 bits of each number first, of all of them in memory that nobody has touched yet. To
    refuse numbers it would write each block twice.
    """
    if len(numbers) <= BLOCK or table.dtype.hasobject:
        return table.take(numbers)
    found = buffers.column(len(numbers), table.dtype)
    for begin in range(0, len(numbers), BLOCK):
        here = slice(begin, begin + BLOCK)
        np.take(table, numbers[here], out=found[here], mode="wrap")
    return found


def valid(values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where the value is not null, shape (len(values),)."""
    bits = values.buffers()[0]
    if bits is None:
        return np.full(len(values), values.null_count == 0)
    first, skipped = divmod(values.offset, 8)
    held = np.frombuffer(bits, np.uint8)[first:]
    return np.unpackbits(held, count=skipped + len(values), bitorder="little")[skipped:].view(np.bool_)


def to_int64(chunks: Iterable[pa.Array], count: int, missing: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Integers as one array of shape (count,), read only; nulls are ``missing``."""
    values: np.ndarray[Any, np.dtype[np.int64]] | None = None
    at = 0
    for chunk in chunks:
        part = _filled(chunk, missing)
        if len(part) == count and part.dtype == np.int64:
            values = part
            break
        values = np.empty(count, np.int64) if values is None else values
        values[at : at + len(part)] = part
        at += len(part)
    values = np.empty(0, np.int64) if values is None else values
    values.setflags(write=False)
    return values


def _filled(chunk: pa.Array, missing: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Integers with ``missing`` for nulls. Where that is what stands there already, as in what a recording is read
    into, they are not copied."""
    found: np.ndarray[Any, np.dtype[Any]]
    if not chunk.null_count:
        found = chunk.to_numpy()
        return found
    held = np.frombuffer(chunk.buffers()[1], chunk.type.to_pandas_dtype())[chunk.offset : chunk.offset + len(chunk)]
    if (valid(chunk) | (held == missing)).all():
        return held
    found = chunk.fill_null(missing).to_numpy()
    return found


def to_codes(chunks: Iterable[pa.Array], count: int) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[str]]:
    """Texts as codes of shape (count,), -1 for null, read only, and the distinct values that they index."""
    codes: np.ndarray[Any, np.dtype[np.int32]] | None = None
    number: dict[str, int] = {}
    at, last, common = 0, None, np.empty(0, np.int32)
    for chunk in chunks:
        part = _filled(chunk.indices, -1).astype(np.int32, copy=False)
        if len(part) == count:
            part.setflags(write=False)
            return part, chunk.dictionary.to_pylist()
        if last is None or not chunk.dictionary.equals(last):
            last = chunk.dictionary
            numbers = [number.setdefault(value, len(number)) for value in last.to_pylist()]
            common = np.array([*numbers, -1], np.int32)
        codes = np.empty(count, np.int32) if codes is None else codes
        codes[at : at + len(part)] = common[part]
        at += len(part)
    codes = np.empty(0, np.int32) if codes is None else codes
    codes.setflags(write=False)
    return codes, list(number)
