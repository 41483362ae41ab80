"""Texts in another order, in memory of their own: compiled, for Arrow's takes twice the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core import memory
from perfkit_core.arrays import valid
from perfkit_core.compiling import compiled_at_once
from perfkit_core.trace import IntArray


def reordered(texts: pa.Array, order: IntArray, more: pa.Array | None = None) -> pa.Array:
    """The strings of these rows, none of them twice, shape (len(order),). Rows behind those of ``texts`` are ``more``,
    which is copied once more and so should be little."""
    more = pa.array([], texts.type) if more is None else more
    ends, cells = _parts(texts)
    other_ends, other_cells = _parts(more)
    size = int(ends[-1] - ends[0]) + int(other_ends[-1] - other_ends[0])
    new_ends, new_cells = memory.column(len(order) + 1, np.int32), memory.column(size, np.uint8)
    _copy(cells, ends, other_cells, other_ends, order, new_cells, new_ends)
    bits = None
    if texts.null_count or more.null_count:
        there = np.concatenate([valid(texts), valid(more)])
        bits = pa.py_buffer(np.packbits(there[order], bitorder="little"))
    return pa.Array.from_buffers(
        texts.type, len(order), [bits, pa.py_buffer(new_ends), pa.py_buffer(new_cells[: new_ends[-1]])]
    )


def _parts(texts: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Where each string ends, with a first number for the beginning, and the bytes."""
    _, ends, text = texts.buffers()
    ends = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.frombuffer(text, np.uint8) if text is not None and text.size else np.empty(0, np.uint8)


@compiled_at_once
def _copy(text: Any, ends: Any, other_text: Any, other_ends: Any, order: Any, new_text: Any, new_ends: Any) -> None:
    at = 0
    here = len(ends) - 1
    new_ends[0] = 0
    for row in range(len(order)):
        wanted = order[row]
        if wanted < here:
            first, last = ends[wanted], ends[wanted + 1]
            for i in range(first, last):
                new_text[at + i - first] = text[i]
        else:
            first, last = other_ends[wanted - here], other_ends[wanted - here + 1]
            for i in range(first, last):
                new_text[at + i - first] = other_text[i]
        at += last - first
        new_ends[row + 1] = at
