"""Gathered rows as a table of columns: as they were recorded, or in the order of time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core import at_once, memory
from perfkit_core.arrays import MISSING, constant
from perfkit_core.assembly.ordering import by_time, texts_taken
from perfkit_core.sources import origins, rows
from perfkit_core.sources.decimals import check_fits, span_ns
from perfkit_core.sources.origins import Origins
from perfkit_core.sources.portion import NULL
from perfkit_core.sources.rows import Rows
from perfkit_core.sources.vocabulary import Vocabulary, encoded
from perfkit_core.trace import IntArray

_COLUMNS: Final = (
    "start_ns", "dur_ns", *origins.INTEGERS, *rows.INTEGERS[2:], *origins.TEXTS, *rows.TEXTS, "args",
)  # fmt: skip

_Make = Callable[[], pa.Array | pa.ChunkedArray | None]


class RowTable:
    """Makes the columns of rows, and gives the memory of each one's source back when it is done."""

    def __init__(
        self, found: Rows, known: Origins, vocabularies: Mapping[str, Vocabulary], base_ns: int, in_order: bool
    ) -> None:
        """``base_ns`` is added to the starts. ``found`` is taken apart; with ``in_order`` by time. Raises SourceError
        where a start or an end does not fit 64 bits then."""
        self._rows, self._known, self._vocabularies = found, known, vocabularies
        if found.count:
            check_fits(base_ns + time for time in span_ns(found.integers["start_ns"], found.integers["dur_ns"]))
        if base_ns:
            found.integers["start_ns"] += base_ns
        self._order = by_time(found.integers["start_ns"], found.integers["dur_ns"]) if in_order else None
        self._scratch = threading.local()

    def table(self, compact: bool) -> pa.Table:
        """Every column. With ``compact``, dictionaries hold only what occurs."""
        columns = self._made({"args": self._args, **self._own(compact)})  # the largest first, while others are few
        columns |= self._made(self._shared(compact))
        return pa.table({name: columns[name] for name in _COLUMNS})

    def _made(self, makers: Mapping[str, _Make]) -> dict[str, pa.Array | pa.ChunkedArray]:
        """Several at once: numpy and Arrow work outside of Python's lock, and new memory takes longer than its use."""
        if self._rows.count < at_once.WORTH_ROWS:
            found = {name: make() for name, make in makers.items()}
        else:
            made = at_once.in_order(lambda make: make(), makers.values())
            found = dict(zip(makers, made, strict=True))
        return {name: self._nothing(name) if column is None else column for name, column in found.items()}

    def _nothing(self, name: str) -> pa.ChunkedArray:
        texts = name in origins.TEXTS or name in rows.TEXTS
        kind = pa.dictionary(pa.int32(), pa.string()) if texts else pa.string() if name == "args" else pa.int64()
        return constant(None, kind, self._rows.count)

    def _own(self, compact: bool) -> dict[str, _Make]:
        """What each event says itself."""
        integers: dict[str, _Make] = {name: partial(self._integers, name) for name in rows.INTEGERS}
        return integers | {name: partial(self._texts, name, compact) for name in rows.TEXTS}

    def _shared(self, compact: bool) -> dict[str, _Make]:
        """What the origins say."""
        origin = self._ordered(self._rows.origin)
        used = self._known.used(origin) if compact else None
        integers: dict[str, _Make] = {name: partial(self._integers_shared, name, origin) for name in origins.INTEGERS}
        return integers | {name: partial(self._known.texts, name, origin, used) for name in origins.TEXTS}

    def _integers(self, name: str) -> pa.Array | None:
        values = self._rows.integers.pop(name, None)
        return None if values is None else _column(self._ordered(values))

    def _integers_shared(self, name: str, origin: npt.NDArray[Any]) -> pa.Array | None:
        values = self._known.integers(name, origin)
        return None if values is None else _column(values)

    def _texts(self, name: str, compact: bool) -> pa.Array | None:
        codes = self._rows.texts.pop(name, None)
        if codes is None:
            return None
        vocabulary = self._vocabularies[name]
        texts, codes = vocabulary.compact(codes) if compact else (vocabulary.texts(), codes)
        return encoded(self._ordered(codes), texts)

    def _args(self) -> pa.Array | pa.ChunkedArray | None:
        args, replaced = self._rows.args, self._rows.replaced
        self._rows.args, self._rows.replaced = None, {}
        if args is None and replaced:
            args = constant(None, pa.string(), self._rows.count)
        if args is None or (self._order is None and not replaced):
            return args
        return texts_taken(args, self._order, replaced)

    def _ordered(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """In place: memory that was touched before costs nothing."""
        if self._order is None:
            return values
        if not hasattr(self._scratch, "cells"):
            self._scratch.cells = memory.column(len(values), np.int64)
        there = self._scratch.cells.view(values.dtype)[: len(values)]
        values[:] = np.take(values, self._order, out=there, mode="clip")
        return values


def _column(values: IntArray) -> pa.Array | None:
    """Integers as a column that shares their memory; None where nothing is known."""
    known = values != NULL
    nulls = len(values) - int(np.count_nonzero(known))
    if nulls and nulls == len(values):
        return None
    bits = None
    if nulls:
        bits = pa.py_buffer(np.packbits(known, bitorder="little"))
        values[~known] = MISSING
    return pa.Array.from_buffers(pa.int64(), len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))], nulls)
