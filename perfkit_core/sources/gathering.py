"""Rows of many stretches in few large blocks, column by column.

Each column of a block is memory of its own, so that whoever puts columns in order can give back one after the other.
Blocks grow with what is there already: a small recording takes little, a large one is in few pieces.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.sources.portion import NULL
from perfkit_core.sources.rows import Rows

_FIRST: Final = 1 << 14
_LARGEST: Final = 1 << 20
"""Rows of a block."""
_HUGE: Final = 4 << 20
"""From so many bytes on, memory in large pages: to touch many small ones takes longer than to fill them."""

_Columns = dict[str, npt.NDArray[Any]]


class Gathering:
    """Takes rows in the order of the source; :meth:`taken` hands them out."""

    def __init__(self) -> None:
        self.count = 0
        self._full: list[Rows] = []
        self._open = _Block(0)

    def add(self, part: Rows) -> None:
        """Put the rows behind those that are here. They are copied."""
        if not part.count:
            return
        if not self._open.fits(part):
            self._close()
            self._open = _Block(max(min(max(self.count, _FIRST), _LARGEST), part.count))
        self._open.add(part)
        self.count += part.count

    def taken(self) -> list[Rows]:
        """All rows, a block each; they are the taker's then."""
        self._close()
        full, self._full, self.count = self._full, [], 0
        return full

    def _close(self) -> None:
        if self._open.count:
            self._full.append(self._open.rows())
        self._open = _Block(0)


class _Block:
    def __init__(self, room: int) -> None:
        self.count = 0
        self._room = room
        self._integers: _Columns = {}
        self._texts: _Columns = {}
        self._args: list[pa.Array] = []

    def fits(self, part: Rows) -> bool:
        return self.count + part.count <= self._room

    def add(self, part: Rows) -> None:
        self._put(self._integers, part.integers, part.count, NULL)
        self._put(self._texts, part.texts, part.count, -1)
        self._args.append(pa.nulls(part.count, pa.string()) if part.args is None else part.args)
        self.count += part.count

    def _put(self, held: _Columns, new: Mapping[str, npt.NDArray[Any]], count: int, missing: int) -> None:
        for name, values in new.items():
            if name not in held:
                held[name] = _memory(self._room, values.dtype)
                held[name][: self.count] = missing
        for name, column in held.items():
            column[self.count : self.count + count] = new.get(name, missing)

    def rows(self) -> Rows:
        integers, texts = (
            {name: values[: self.count] for name, values in held.items()} for held in (self._integers, self._texts)
        )
        return Rows(self.count, integers, texts, pa.chunked_array(self._args, pa.string()))


def _memory(count: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Room for a column, which is the system's again with the last who uses it: malloc keeps what it is given back."""
    room = mmap.mmap(-1, count * kind.itemsize)
    if len(room) >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(room, kind)
