"""The order of events in the table: by start, of those that start together the longest first, then as recorded.

Parents come before their children, so that algorithms on trees are one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from perfkit_core.algorithms.arrays import BLOCK, OFFSETS_END, IntArray, joined
from perfkit_core.runtime import parallel

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
        from perfkit_core.assembly.text_order import reordered  # imports numba

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
