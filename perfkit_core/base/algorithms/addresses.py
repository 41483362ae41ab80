"""Strings by their addresses: copies in compiled code, and reordering. No access is checked: the caller must keep the
memory alive and pass valid addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import OFFSETS_END, BoolArray, Int32Array, IntArray, allocate, valid
from perfkit_core.base.runtime.compiled import Out, compiled, inlined
from perfkit_core.base.runtime.primitives import byte, put_byte, put_uint64, uint64

WORD: Final = 8


@inlined
def load8(address, index):  # type: ignore[no-untyped-def]
    """Return the little-endian 64-bit word that begins at byte ``index``, which need not be aligned."""
    return uint64(address + index, 0)


@inlined
def put_bytes(out, to, buffer, start, end):  # type: ignore[no-untyped-def]
    """Copy ``buffer[start:end]`` to ``out[to:]`` in words of 8 bytes. Up to 7 bytes after the end are copied, too."""
    while start < end:
        put_uint64(out + to, 0, load8(buffer, start))
        to += WORD
        start += WORD


def reordered(texts: pa.Array, order: IntArray, instead: Mapping[int, str | None] | None = None) -> pa.Array:
    """Return the strings of the rows ``order``, shape (len(order),). ``instead`` maps rows of ``texts`` to replacement
    strings. No row may occur twice in ``order``, because memory is allocated for each string only once. Raises
    ValueError if the result does not fit one string array."""
    rows = np.array(sorted(instead or ()), np.int64)
    replacements = pa.array([instead[row] for row in rows.tolist()] if instead else [], texts.type)
    replaced = np.zeros(len(texts) if instead else 0, np.bool_)
    replaced[rows] = True
    ends, cells = _ends_and_bytes(texts)
    other_ends, other_cells = _ends_and_bytes(replacements)
    size = int(ends[-1] - ends[0]) + int(other_ends[-1] - other_ends[0])
    if size > OFFSETS_END:
        raise ValueError(f"{size} bytes of text exceed the limit of {OFFSETS_END} for one array")
    new_ends, new_cells = allocate(len(order) + 1, np.int32), allocate(size + WORD, np.uint8)
    text, other_text, new_text = (part.ctypes.data for part in (cells, other_cells, new_cells))
    _copy(text, len(cells), ends, replaced, rows, other_text, len(other_cells), other_ends, order, new_text, new_ends)
    bits = None
    if texts.null_count or replacements.null_count:
        mask = valid(texts)
        mask[rows] = valid(replacements)
        bits = pa.py_buffer(np.packbits(mask[order], bitorder="little"))
    return pa.Array.from_buffers(
        texts.type, len(order), [bits, pa.py_buffer(new_ends), pa.py_buffer(new_cells[: new_ends[-1]])]
    )


def _ends_and_bytes(texts: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    _, ends, text = texts.buffers()
    ends = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8)


@compiled
def _copy(
    text: int, size: int, ends: Int32Array, replaced: BoolArray, rows: IntArray, other_text: int, other_size: int,
    other_ends: Int32Array, order: IntArray, new_text: int, new_ends: Out[Int32Array],
) -> None:  # fmt: skip
    at = 0
    new_ends[0] = 0
    for row in range(len(order)):
        source = order[row]
        if len(replaced) and replaced[source]:
            other = np.searchsorted(rows, source)
            first, last = np.int64(other_ends[other]), np.int64(other_ends[other + 1])
            at = _put(new_text, at, other_text, other_size, first, last)
        else:
            at = _put(new_text, at, text, size, np.int64(ends[source]), np.int64(ends[source + 1]))
        new_ends[row + 1] = at


@inlined
def _put(out, to, text, size, first, last):  # type: ignore[no-untyped-def]
    """Copy one string, and return the position after it. Up to 7 bytes too many are copied. The next string overwrites
    them; ``out`` has a spare word at its end."""
    if last + WORD <= size:
        put_bytes(out, to, text, first, last)
    else:
        for i in range(last - first):
            put_byte(out, to + i, byte(text, first + i))
    return to + last - first
