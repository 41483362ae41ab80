"""Recorded events on their way into columns: arrays of a stretch of events, and how stretches become a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.arrays import constant
from perfkit_core.sources.portion import ARGUMENT_INTEGERS, ARGUMENT_TEXTS, NULL
from perfkit_core.sources.vocabulary import Codes, Vocabulary
from perfkit_core.trace import IntArray

INTEGERS: Final = ("start_ns", "dur_ns", "pid", "tid", "step", "offset_ns", *ARGUMENT_INTEGERS)
TEXTS: Final = ("name", "kind", "category", "device", "phase", "layer", "copy_kind", *ARGUMENT_TEXTS)
"""Columns of recorded events, beside ``args``."""


@dataclass(slots=True)
class Rows:
    """Events, in the order of the source. ``integers`` and ``texts`` (numbers of a vocabulary) by column, each of shape
    (count,); a column that is missing holds nothing. ``args`` are strings, None where no event has any."""

    count: int
    integers: dict[str, IntArray]
    texts: dict[str, Codes]
    args: pa.Array | pa.ChunkedArray | None

    def put(self, at: npt.NDArray[np.int64], other: Rows) -> None:
        """Place the rows of ``other`` at the positions ``at``, shape (other.count,)."""
        for name in INTEGERS:
            if name in self.integers or name in other.integers:
                target = self.integers.setdefault(name, np.full(self.count, NULL, np.int64))
                target[at] = other.integers.get(name, NULL)
        for name in TEXTS:
            if name in self.texts or name in other.texts:
                codes = self.texts.setdefault(name, np.full(self.count, -1, np.int32))
                codes[at] = other.texts.get(name, -1)
        mask = np.zeros(self.count, np.bool_)
        mask[at] = True
        order = np.argsort(at)
        found = pa.nulls(other.count, pa.string()) if other.args is None else other.args.take(pa.array(order))
        held = pa.nulls(self.count, pa.string()) if self.args is None else self.args
        self.args = pc.replace_with_mask(held, pa.array(mask), found)

    def only(self, kept: npt.NDArray[np.bool_]) -> Rows:
        """The rows for which ``kept`` is true."""
        return Rows(
            int(kept.sum()),
            {name: values[kept] for name, values in self.integers.items()},
            {name: codes[kept] for name, codes in self.texts.items()},
            None if self.args is None else self.args.filter(pa.array(kept)),
        )


def table(
    parts: Sequence[Rows], vocabularies: Mapping[str, Vocabulary], base_ns: int = 0, compact: bool = True
) -> pa.Table:
    """One table of all parts: every column of INTEGERS and TEXTS, and ``args``; starts shifted by ``base_ns``.

    With ``compact``, dictionaries hold only what occurs. Columns stay in pieces, a part each: whoever puts them in
    order copies them anyway.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name in INTEGERS:
        found = [part.integers.get(name) for part in parts]
        columns[name] = _chunked([None if one is None else _integers(one) for one in found], parts, pa.int64())
    if base_ns:
        columns["start_ns"] = pc.add(columns["start_ns"], pa.scalar(base_ns, pa.int64()))
    for name in TEXTS:
        pieces = vocabularies[name].columns([part.texts.get(name) for part in parts], compact)
        columns[name] = _chunked(pieces, parts, pa.dictionary(pa.int32(), pa.string()))
    columns["args"] = _args(parts)
    return pa.table(columns)


def _chunked(pieces: Sequence[pa.Array | None], parts: Sequence[Rows], kind: pa.DataType) -> pa.ChunkedArray:
    """The pieces in one column; those that are missing are null."""
    if all(piece is None for piece in pieces):
        return constant(None, kind, sum(part.count for part in parts))
    filled = [pa.nulls(p.count, kind) if piece is None else piece for piece, p in zip(pieces, parts, strict=True)]
    return pa.chunked_array(filled, kind)


def _args(parts: Sequence[Rows]) -> pa.ChunkedArray:
    columns = [pa.nulls(part.count, pa.string()) if part.args is None else part.args for part in parts]
    pieces = [column.chunks if isinstance(column, pa.ChunkedArray) else [column] for column in columns]
    return pa.chunked_array([piece for some in pieces for piece in some], pa.string())


def _integers(values: IntArray) -> pa.Array:
    known = values != NULL
    if known.all():
        return pa.array(values)
    bitmap = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])
