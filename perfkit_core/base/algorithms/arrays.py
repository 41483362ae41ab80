"""Tools for Arrow columns and numpy arrays: replacing nulls, dictionaries, lookups, and memory for large arrays."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.system import machine
from perfkit_core.errors import UsageError

NO_ROW: Final = -1

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
ByteArray = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]

TEXT: Final = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Codes:
    """A dictionary-encoded column. ``codes`` has shape (rows,) and holds indexes of ``values``, or -1 for null."""

    codes: npt.NDArray[np.int32]
    values: list[str]

    def rows(self, *texts: str) -> BoolArray:
        """Return the mask of rows whose value is one of ``texts``, shape (rows,)."""
        has = np.array([value in texts for value in self.values], dtype=np.bool_)
        return self.lookup(has, False) if has.any() else np.zeros(len(self.codes), np.bool_)

    def lookup(self, per_value: npt.NDArray[Any], missing: Any) -> npt.NDArray[Any]:
        """Return an array with ``per_value[code]`` for each code in ``codes``, and ``missing`` for null. Raises
        ValueError if ``per_value`` does not have one item for each of ``values``."""
        if len(per_value) != len(self.values):
            raise ValueError(f"{len(per_value)} items for {len(self.values)} values")
        table = np.append(np.asarray(per_value), np.asarray([missing], dtype=np.asarray(per_value).dtype))
        return spread(table, self.codes)


MISSING: Final = -1
"""The number that replaces null in integer arrays by default."""
OFFSETS_END: Final = 2**31 - 1
"""Largest number of bytes of text in one Arrow string array, whose offsets have 32 bits."""
BLOCK: Final = 1 << 16
"""Rows per block. Loops over many rows handle one block at a time. :func:`constant` stores one block and repeats it."""
LONGEST_PATTERN: Final = 10_000
SMALL_BYTES: Final = 1 << 20
_DENSE: Final = 8
"""A lookup table is faster than a search if the range of the ids is at most this many times the number of ids."""


def allocate(count: int, kind: Any) -> npt.NDArray[Any]:
    """Return an uninitialised array of shape (count,). Pages that are never written take no memory. Raises MemoryError.

    Large arrays are allocated with ``mmap`` instead of malloc, for two reasons (docs/decisions/0010):

    - Their memory returns to the system when the last array that uses it is freed.
    - They avoid huge pages, which numpy requests from 4 MB on. With these, the first write to a page can take five
      times as long on virtual machines. Reading a large recording spends most of its time on such first writes.
    """
    size = count * np.dtype(kind).itemsize
    if size <= SMALL_BYTES:
        return np.empty(count, kind)
    # By default, mmap returns shared memory, which the kernel backs by a file.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        return np.frombuffer(mmap.mmap(-1, size, **private), kind, count)
    except OSError as error:
        raise MemoryError(f"no memory for {size} bytes ({error})") from None


def new_array(count: int, kind: Any = np.int64) -> npt.NDArray[Any]:
    """Return an array as :func:`allocate` does, all of which will be written. Raises UsageError if it would exceed the
    limit of memory."""
    machine.require(count * np.dtype(kind).itemsize, "an array of the events")
    return allocate(count, kind)


def filled(count: int, value: int, kind: Any = np.int64) -> npt.NDArray[Any]:
    """Return an array that has ``value`` in each cell. Raises UsageError as :func:`new_array` does."""
    cells = new_array(count, kind)
    if value or cells.nbytes <= SMALL_BYTES:  # larger arrays are zero at first
        cells.fill(value)
    return cells


def copied(values: npt.NDArray[Any], kind: Any = np.int64) -> npt.NDArray[Any]:
    """Return a copy of the values that can be written. Raises UsageError as :func:`new_array` does."""
    cells = new_array(len(values), kind)
    cells[:] = values
    return cells


def joined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. The array shares the column's memory if at most one chunk has rows."""
    pieces = [chunk for chunk in column.chunks if len(chunk)] or column.chunks[:1]
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(column.unify_dictionaries().chunks or [pa.array([], column.type)])


def picked(column: pa.ChunkedArray, rows: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return some rows of a column as one array. ``rows`` must ascend. Arrow's ``take`` would first join all texts."""
    ends = np.cumsum([len(piece) for piece in column.chunks])
    cuts = np.searchsorted(rows, np.append(0, ends)).tolist()
    starts = (ends - [len(piece) for piece in column.chunks]).tolist()
    pieces = [
        piece.take(pa.array(rows[first:last] - start))
        for piece, start, first, last in zip(column.chunks, starts, cuts[:-1], cuts[1:], strict=True)
        if first < last
    ]
    return joined(pa.chunked_array(pieces, column.type))


def constant(value: int | None, of_type: pa.DataType, count: int) -> pa.ChunkedArray:
    """Return a column that repeats one value (null if None). All its chunks share the memory of one block."""
    blocks, rest = divmod(count, BLOCK)
    block = _block(value, of_type)
    return pa.chunked_array([block] * blocks + ([block.slice(0, rest)] if rest else []), of_type)


@functools.lru_cache(16)
def _block(value: int | None, of_type: pa.DataType) -> pa.Array:
    return pa.nulls(BLOCK, of_type) if value is None else pa.repeat(pa.scalar(value, of_type), BLOCK)


def nullable(values: np.ndarray[Any, np.dtype[Any]]) -> pa.ChunkedArray:
    """Return integers as a column that shares their memory. Negative integers become null."""
    mask = values >= 0
    count, of_type = len(values), pa.from_numpy_dtype(values.dtype)
    nulls = count - int(np.count_nonzero(mask))
    if nulls == count:
        return constant(None, of_type, count)
    bits = pa.py_buffer(np.packbits(mask, bitorder="little")) if nulls else None
    cells = pa.py_buffer(np.ascontiguousarray(values))
    return pa.chunked_array([pa.Array.from_buffers(of_type, count, [bits, cells], nulls)])


def texts(codes: np.ndarray[Any, np.dtype[np.int32]], values: Sequence[str]) -> pa.ChunkedArray:
    """Return a text column that shares the memory of ``codes``, which index ``values``. Negative codes become null."""
    indices = nullable(codes)
    if indices.null_count == len(codes):
        return constant(None, TEXT, len(codes))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices.chunk(0), pa.array(values, pa.string()))], TEXT)


def spread(table: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return ``table[numbers]``. Negative numbers count from the end. The range is not checked."""
    if len(numbers) <= BLOCK or table.dtype.hasobject:
        return table.take(numbers)
    cells = new_array(len(numbers), table.dtype)
    # np.take copies its indexes to 64 bits, so short blocks save memory. Mode "wrap" avoids another buffer, which numpy
    # uses to check the range.
    for begin in range(0, len(numbers), BLOCK):
        here = slice(begin, begin + BLOCK)
        np.take(table, numbers[here], out=cells[here], mode="wrap")
    return cells


def valid(values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return the mask of values that are not null, shape (len(values),)."""
    bits = values.buffers()[0]
    if bits is None:
        return np.full(len(values), values.null_count == 0)
    first, skipped = divmod(values.offset, 8)
    mask_bytes = np.frombuffer(bits, np.uint8)[first:]
    return np.unpackbits(mask_bytes, count=skipped + len(values), bitorder="little")[skipped:].view(np.bool_)


def to_int64(chunks: Iterable[pa.Array], count: int, missing: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the integers of all chunks as one read-only array of shape (count,). ``missing`` replaces nulls."""
    values, at = allocate(count, np.int64), 0
    for chunk in chunks:
        part = without_nulls(chunk, missing)
        if len(part) == count and part.dtype == np.int64:
            values = part
            break
        values[at : at + len(part)] = part
        at += len(part)
    values.setflags(write=False)
    return values


def without_nulls(chunk: pa.Array, missing: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Return integers with ``missing`` for nulls. The memory of ``chunk`` is shared if nothing needs to be replaced."""
    if not chunk.null_count:
        return cast("npt.NDArray[Any]", chunk.to_numpy())
    values = np.frombuffer(chunk.buffers()[1], chunk.type.to_pandas_dtype())[chunk.offset : chunk.offset + len(chunk)]
    if (valid(chunk) | (values == missing)).all():
        return values
    return cast("npt.NDArray[Any]", chunk.cast(pa.int64()).fill_null(missing).to_numpy())  # it may not fit in 32 bits


def aligned(columns: Sequence[Iterator[IntArray]]) -> Iterator[tuple[IntArray, ...]]:
    """Yield the cells of several columns of the same length in blocks of equal rows. The parts of a column may have any
    length."""
    rest: list[IntArray] = [np.empty(0, np.int64)] * len(columns)
    while True:
        for number, column in enumerate(columns):
            while not len(rest[number]):
                part = next(column, None)
                if part is None:
                    return
                rest[number] = part
        count = min(BLOCK, *map(len, rest))
        yield tuple(cells[:count].astype(np.int64, copy=False) for cells in rest)
        rest = [cells[count:] for cells in rest]


def to_codes(chunks: Iterable[pa.Array], count: int) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[str]]:
    """Return the codes of the texts (read-only, shape (count,), -1 for null) and the list of the distinct texts."""
    codes = allocate(count, np.int32)
    number: dict[str, int] = {}
    at, last, common = 0, None, np.empty(0, np.int32)
    for chunk in chunks:
        part = without_nulls(chunk.indices, -1).astype(np.int32, copy=False)
        if len(part) == count:
            values = chunk.dictionary.to_pylist()
            if len(set(values)) == len(values):  # Arrow allows a dictionary to have a text twice
                part.setflags(write=False)
                return part, values
        if last is None or not chunk.dictionary.equals(last):
            last = chunk.dictionary
            numbers = [number.setdefault(value, len(number)) for value in last.to_pylist()]
            common = np.array([*numbers, -1], np.int32)
        codes[at : at + len(part)] = common[part]
        at += len(part)
    codes.setflags(write=False)
    return codes, list(number)


def one_of(column: pa.ChunkedArray, *texts: str) -> BoolArray:
    """Return the mask of the rows of a text column that have one of ``texts``; False for null."""
    if pa.types.is_dictionary(column.type):
        return Codes(*to_codes(column.chunks, len(column))).rows(*texts)
    return np.asarray(pc.is_in(column.cast(pa.string()), value_set=pa.array(texts, pa.string())))


def matches(values: Sequence[str | None], pattern: str) -> BoolArray:
    """Return the mask of texts that contain a match of ``pattern``; False for null. Raises UsageError. The pattern is
    in RE2 syntax. RE2 takes linear time and bounded memory, so that no user's pattern can hang."""
    if len(pattern) > LONGEST_PATTERN:
        text = f"the regular expression has {len(pattern)} characters"
        raise UsageError(text, f"at most {LONGEST_PATTERN} are allowed")
    try:
        hits = pc.match_substring_regex(pa.array(values, pa.string()), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:  # a byte of the command line may not be UTF-8
        hint = r"patterns are in RE2 syntax, in which \( matches a bracket"
        raise UsageError(f"not a regular expression: {pattern!r} ({error})", hint) from None
    mask: BoolArray = np.asarray(pc.fill_null(hits, False).to_numpy(zero_copy_only=False), np.bool_)
    return mask


def first_match(lookup: IntArray, keys: IntArray, rows: IntArray) -> IntArray:
    """Return for each key in ``lookup`` the first of ``rows`` with this key, or -1. A negative key matches no row."""
    usable = keys >= 0
    if not usable.all():  # indexing copies
        keys, rows = keys[usable], rows[usable]
    matches = filled(len(lookup), NO_ROW)
    if not len(keys) or not len(lookup):
        return matches
    low, span = int(keys.min()), int(keys.max()) - int(keys.min()) + 1
    if span <= _DENSE * len(keys):
        first = filled(span, NO_ROW)
        first[keys[::-1] - low] = rows[::-1]
        hit = (lookup >= low) & (lookup < low + span)
        matches[hit] = first[lookup[hit] - low]
        return matches
    order = np.argsort(keys, kind="stable")
    keys, rows = keys[order], rows[order]
    position = np.minimum(np.searchsorted(keys, lookup), len(keys) - 1)
    hit = (keys[position] == lookup) & (lookup >= 0)
    matches[hit] = rows[position[hit]]
    return matches
