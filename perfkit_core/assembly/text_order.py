"""Texts in another order, with memory of their own: compiled, because Arrow's ``take`` needs twice the memory.

A module of its own, because it imports numba, which small recordings do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms.arrays import OFFSETS_END, IntArray, valid
from perfkit_core.runtime import buffers
from perfkit_core.runtime.addresses import WORD, by_address, byte, inlined, put_byte, put_bytes


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
