"""Rows that a scan of a protobuf found, as integer columns; texts are looked up in the bytes when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_paddle.pb_schema import MISSING
from perfkit_paddle.pb_texts import intern

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind of message: int64 ``cells``, shape (columns, rows), MISSING where absent."""

    data: Bytes
    cells: IntArray
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.cells.shape[1])

    def __getitem__(self, column: str) -> IntArray:
        """One column, shape (rows,)."""
        values: IntArray = self.cells[self.columns.index(column)]
        return values

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """Some of the rows: numbers, or a mask. They share the memory where they stand together."""
        return Table(self.data, self.cells[:, _together(rows) or rows], self.columns)

    def known(self, column: str) -> npt.NDArray[np.bool_]:
        """True where the column was in the file."""
        return np.asarray(self[column] != MISSING)

    def integers(self, column: str) -> pa.Array:
        """A column as nullable int64; it shares the memory where every cell is known."""
        known = self.known(column)
        return pa.array(self[column], mask=None if known.all() else ~known)

    def floats(self, column: str) -> npt.NDArray[np.float32]:
        """A float column; NaN where absent."""
        bits = np.where(self.known(column), self[column], 0x7FC00000)
        return np.asarray(bits.astype(np.uint32).view(np.float32))

    def texts(self, column: str) -> pa.DictionaryArray:
        """A text column, dictionary encoded; bytes that are not UTF-8 are replaced; null where absent."""
        offset, length = self[column], np.maximum(self[f"{column}.length"], 0)
        known = self.known(column)
        codes, first = intern(self.data.ctypes.data, offset, length, known)
        values = [self.data[offset[row] : offset[row] + length[row]].tobytes() for row in first]
        texts = pa.array([value.decode("utf-8", "replace") for value in values], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=None if known.all() else ~known), texts)


def _together(rows: npt.NDArray[Any]) -> slice | None:
    """The rows of a mask as a slice; None where others stand between them, or for numbers."""
    if rows.dtype != np.bool_ or not rows.any():
        return None
    first, last = int(rows.argmax()), len(rows) - int(rows[::-1].argmax())
    return slice(first, last) if rows[first:last].all() else None
