"""In which order do events stand in the table? By start; of those that start together the longest first, then as
recorded. So parents come before their children, and tree algorithms are one pass.

Texts in another order, in memory of their own: compiled, for Arrow's takes twice the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms.arrays import BLOCK, OFFSETS_END, IntArray, joined, valid
from perfkit_core.runtime import buffers, parallel
from perfkit_core.runtime.buffers import WORD, by_address, byte, inlined, put_byte, put_bytes


def reordered(texts: pa.Array, order: IntArray, instead: Mapping[int, str | None] | None = None) -> pa.Array:
    """The strings in the order of these rows, shape (len(order),); ``instead`` are others for single rows of ``texts``.

    No row may occur twice: there is memory for each text once. Raises ValueError for more than a string array holds.
    """
    rows = np.array(sorted(instead or ()), np.int64)
    others = pa.array([instead[row] for row in rows.tolist()] if instead else [], texts.type)
    replaced = np.zeros(len(texts) if instead else 0, np.bool_)
    replaced[rows] = True
    ends, cells = _parts(texts)
    other_ends, other_cells = _parts(others)
    size = int(ends[-1] - ends[0]) + int(other_ends[-1] - other_ends[0])
    if size > OFFSETS_END:
        raise ValueError(f"{size} bytes of text, of which one array holds {OFFSETS_END}")
    new_ends, new_cells = buffers.column(len(order) + 1, np.int32), buffers.column(size + WORD, np.uint8)
    _copy(
        _address(cells), len(cells), ends, replaced, rows, _address(other_cells), len(other_cells), other_ends, order,
        _address(new_cells), new_ends,
    )  # fmt: skip
    bits = None
    if texts.null_count or others.null_count:
        known = valid(texts)
        known[rows] = valid(others)
        bits = pa.py_buffer(np.packbits(known[order], bitorder="little"))
    return pa.Array.from_buffers(
        texts.type, len(order), [bits, pa.py_buffer(new_ends), pa.py_buffer(new_cells[: new_ends[-1]])]
    )


def _parts(texts: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Where each string ends, with a first number for the beginning, and the bytes."""
    _, ends, text = texts.buffers()
    ends = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8)


def _address(cells: npt.NDArray[np.uint8]) -> int:
    return int(cells.ctypes.data)


@by_address
def _copy(
    text: Any, size: Any, ends: Any, replaced: Any, rows: Any, other_text: Any, other_size: Any, other_ends: Any,
    order: Any, new_text: Any, new_ends: Any,
) -> None:  # fmt: skip
    at = 0
    new_ends[0] = 0
    for row in range(len(order)):
        wanted = order[row]
        if len(replaced) and replaced[wanted]:
            other = np.searchsorted(rows, wanted)
            at = _put(new_text, at, other_text, other_size, other_ends[other], other_ends[other + 1])
        else:
            at = _put(new_text, at, text, size, ends[wanted], ends[wanted + 1])
        new_ends[row + 1] = at


@inlined
def _put(out: Any, to: Any, text: Any, size: Any, first: Any, last: Any) -> Any:
    """Copies one string, and what is behind it as far as a word goes: the next string will stand there, or the spare
    word at the end."""
    if last + WORD <= size:
        put_bytes(out, to, text, first, last)
    else:
        for i in range(last - first):
            put_byte(out, to + i, byte(text, first + i))
    return to + last - first


_SLICE: Final = 1 << 20


def by_time(start_ns: IntArray, dur_ns: IntArray) -> IntArray | None:
    """Row numbers in the order of the table, shape (rows,); None where the events stand in it already."""
    falls = start_ns[1:] < start_ns[:-1]
    ties = start_ns[1:] == start_ns[:-1]
    if not falls.any() and not (ties & (dur_ns[1:] > dur_ns[:-1])).any():
        return None
    order = np.argsort(start_ns, kind="stable")  # of runs that ascend already, as recordings are, a merge
    at = _tied(start_ns, order)
    if len(at):
        tied = order[at]
        order[at] = tied[np.lexsort((-dur_ns[tied], start_ns[tied]))]
    return order


def _tied(start_ns: IntArray, order: IntArray) -> IntArray:
    """Where in the order others start together. Block by block: what is in a cache takes no memory of its own."""
    ties = np.zeros(len(order) + 1, np.bool_)
    for begin in range(0, len(order), BLOCK):
        ordered = start_ns[order[begin : begin + BLOCK + 1]]
        np.equal(ordered[1:], ordered[:-1], out=ties[begin + 1 : begin + len(ordered)])
    return np.flatnonzero(ties[1:] | ties[:-1])


def arranged(
    columns: dict[str, pa.ChunkedArray], types: Mapping[str, pa.DataType], order: IntArray | None
) -> dict[str, pa.ChunkedArray]:
    """Each column in another type and order, in one piece, but for texts that stay in their order; several at once, as
    Arrow works outside of Python's lock.

    ``columns`` are taken out as they are done, so that their memory serves the next ones."""
    rows = None if order is None else pa.array(order)

    def one(name: str) -> pa.ChunkedArray:
        return _arranged(columns.pop(name), types[name], rows)

    if len(types) < 2 or len(next(iter(columns.values()))) < parallel.WORTH_ROWS:
        return {name: one(name) for name in types}
    return dict(zip(types, parallel.in_order(one, types), strict=True))


def _arranged(column: pa.ChunkedArray, of_type: pa.DataType, rows: pa.Array | None) -> pa.ChunkedArray:
    if pa.types.is_string(column.type) and column.type == of_type:
        return column if rows is None else texts_taken(column, rows.to_numpy())
    whole = joined(column)
    if rows is not None:
        whole = _taken(whole, rows)
    return pa.chunked_array([_cast(whole, of_type)], of_type)


def _taken(values: pa.Array, rows: pa.Array) -> pa.Array:
    if values.null_count == 0 and pa.types.is_integer(values.type):
        return pa.array(values.to_numpy()[rows.to_numpy()])
    return values.take(rows)


def texts_taken(
    column: pa.ChunkedArray, order: IntArray | None, instead: Mapping[int, str | None] = MappingProxyType({})
) -> pa.ChunkedArray:
    """The texts of these rows, shape (rows,), none of them twice (None: of all); ``instead`` are others for single rows
    of the column."""
    order = np.arange(len(column)) if order is None else order
    others = pa.chunked_array([list(instead.values())], column.type)
    small = column.num_chunks == 1 and column.nbytes + others.nbytes <= OFFSETS_END
    if small and len(column) >= parallel.WORTH_ROWS:
        # loads numba

        return pa.chunked_array([reordered(column.chunk(0), order, instead)], column.type)
    if instead:
        source = np.arange(len(column))
        source[list(instead)] = np.arange(len(column), len(column) + len(others))
        order, column = source[order], pa.chunked_array([*column.chunks, *others.chunks], column.type)
    return _texts_taken(column, pa.array(order))


def _texts_taken(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    if column.num_chunks > 1 and column.nbytes > OFFSETS_END:
        return _long_texts(column, rows)
    return pa.chunked_array([joined(column).take(rows)], column.type)


def _long_texts(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Texts of more than 2 GB, which no single string array holds."""
    whole = column.cast(pa.large_string()).combine_chunks()
    pieces = [whole.take(rows.slice(at, _SLICE)).cast(column.type) for at in range(0, len(rows), _SLICE)]
    return pa.chunked_array(pieces, column.type)


def _cast(values: pa.Array, to: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(to) and not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    return values if values.type == to else values.cast(to)
