"""Recorded events as arrays. Many events have the same name, category, thread and so on. Each combination of these
values is stored once, as an origin, and each event holds the number of its origin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms.arrays import BLOCK, BoolArray, IntArray, spread

NULL: Final = -(2**63)
"""Stands for null in integer columns. An argument with this value is stored in ``args``, not in its column."""

ARGUMENT_INTEGERS: Final = (
    "correlation", "external", "stream", "sequence", "bytes", "address", "total_bytes", "flops", "frame", "caller",
)  # fmt: skip
COPIED: Final = frozenset({"frame", "caller"})
"""Columns that only the assembly uses. Their arguments are also in ``args``."""
ARGUMENT_TEXTS: Final = ("shapes", "dtypes", "stack", "module")
INTEGERS: Final = ("start_ns", "dur_ns", "offset_ns", *ARGUMENT_INTEGERS)
"""The integer columns that are not in :class:`Origin`."""
ORIGIN_TEXTS: Final = ("name", "kind", "category", "device", "phase", "layer", "copy_kind")
ORIGIN_INTEGERS: Final = ("pid", "tid", "step", "rank")

Codes = npt.NDArray[np.int32]


class Vocabulary:
    """The distinct texts of a dictionary column, numbered by first appearance. The number of a missing text is -1."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._array = pa.array([], pa.string())

    def number(self, text: str | None) -> int:
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def numbers(self, texts: Iterable[str | None]) -> Codes:
        texts = list(texts)
        numbers = {text: self.number(text) for text in dict.fromkeys(texts)}
        return np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts))

    def texts(self) -> pa.Array:
        if len(self._array) != len(self._numbers):
            self._array = pa.array(self._numbers, pa.string())
        return self._array

    def compact(self, codes: Codes, counted: BoolArray | None = None) -> tuple[pa.Array, Codes]:
        """Drop the texts that ``codes`` do not use. Return the remaining texts, and ``codes`` renumbered to index them.
        If a mask ``counted`` is given, codes outside the mask are ignored, and their new codes are undefined."""
        occurs = np.zeros(len(self._numbers) + 1, np.bool_)
        occurs[codes if counted is None else codes[counted]] = True
        occurs[-1] = False
        if occurs[:-1].all():
            return self.texts(), codes
        new_code = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        new_code[-1] = -1
        texts = [text for text, used in zip(self._numbers, occurs.tolist(), strict=False) if used]
        return pa.array(texts, pa.string()), new_code[codes]


def validity(mask: BoolArray) -> pa.Buffer | None:
    """Return Arrow's validity bitmap for a mask of rows that are not null, or None if no row is null."""
    return None if mask.all() else pa.py_buffer(np.packbits(mask, bitorder="little"))


def encoded(codes: Codes, texts: pa.Array) -> pa.DictionaryArray:
    """Return a dictionary column that shares the memory of the codes. Negative codes become null."""
    indices = pa.Array.from_buffers(pa.int32(), len(codes), [validity(codes >= 0), pa.py_buffer(codes)])
    return pa.DictionaryArray.from_arrays(indices, texts)


class Origin(NamedTuple):
    """Values of an event that many other events share. Each distinct combination is stored once."""

    name: str | None
    kind: str | None
    category: str | None
    device: str | None
    phase: str | None
    layer: str | None
    copy_kind: str | None
    pid: int | None
    tid: int | None
    step: int | None
    rank: int | None = None


class Origins:
    """The distinct :class:`Origin` values of a recording, numbered by first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}
        self.distinct: list[Origin] = []
        self._vocabularies = {column: Vocabulary() for column in ORIGIN_TEXTS}
        self._texts = {column: np.empty(0, np.int32) for column in ORIGIN_TEXTS}
        self._integers = {column: np.empty(0, np.int64) for column in ORIGIN_INTEGERS}

    def number(self, origin: Origin) -> int:
        number = self._numbers.setdefault(origin, len(self.distinct))
        if number == len(self.distinct):
            self.distinct.append(origin)
        return number

    def fill(self) -> None:
        """Add the origins that are new since the last call to the columns, before :meth:`texts` and :meth:`integers`
        are called. These run in several threads."""
        new = self.distinct[len(self._texts["name"]) :]
        for column, codes in self._texts.items():
            more = self._vocabularies[column].numbers(map(attrgetter(column), new))
            self._texts[column] = np.append(codes, more)
        for column, integers in self._integers.items():
            values = [NULL if value is None else value for value in map(attrgetter(column), new)]
            self._integers[column] = np.append(integers, np.array(values, np.int64))

    def used(self, origin: npt.NDArray[Any]) -> BoolArray:
        """Return a mask, shape (len(distinct),). Item i is true if the number i occurs in ``origin``."""
        used = np.zeros(len(self.distinct), np.bool_)
        for begin in range(0, len(origin), BLOCK):
            used[origin[begin : begin + BLOCK]] = True
        return used

    def texts(self, column: str, origin: npt.NDArray[Any], used: BoolArray | None) -> pa.DictionaryArray | None:
        """Return a dictionary-encoded column, or None if it has no texts. ``origin`` has the number of each event's
        origin. With a mask ``used`` over the origins, the dictionary has only the texts of the origins in the mask."""
        vocabulary, codes = self._vocabularies[column], self._texts[column]
        values = vocabulary.texts()
        if used is not None:
            values, codes = vocabulary.compact(codes, used)
        return encoded(spread(codes, origin), values) if len(values) else None

    def integers(self, column: str, origin: npt.NDArray[Any]) -> IntArray | None:
        """Return an integer column, or None if no origin has a value. ``origin``: see :meth:`texts`."""
        values = self._integers[column]
        return spread(values, origin) if (values != NULL).any() else None


_ROWS_PER_REPLACEMENT: Final = 32
"""If ``Rows.replaced`` has more than ``Rows.count`` / (this number) texts, they move to a copy of ``Rows.args``."""
_MAX_PARTS: Final = 16
"""Maximum number of parts into which rows are divided without a copy. For more parts, one copy costs less."""


@dataclass(slots=True)
class Rows:
    """Events in the order of the source. Empty columns are not in ``integers`` and ``texts``."""

    count: int
    origin: Codes  # number of each event's origin
    integers: dict[str, IntArray]  # for each column, an array of shape (count,)
    texts: dict[str, Codes]  # for each column, the numbers of its texts, shape (count,)
    args: pa.Array | pa.ChunkedArray | None  # None if no event has arguments; chunked if too long for one array
    replaced: dict[int, str | None] = field(default_factory=dict)  # for some rows, the text that replaces ``args``

    def put(self, at: IntArray, other: Rows) -> None:
        """Write the rows of ``other`` at the positions ``at``, shape (other.count,)."""
        self.origin[at] = other.origin
        for name in INTEGERS:
            if name in self.integers or name in other.integers:
                target = self.integers.setdefault(name, np.full(self.count, NULL, np.int64))
                target[at] = other.integers.get(name, NULL)
        for name in ARGUMENT_TEXTS:
            if name in self.texts or name in other.texts:
                codes = self.texts.setdefault(name, np.full(self.count, -1, np.int32))
                codes[at] = other.texts.get(name, -1)
        self.replace(at, other.arguments(np.arange(other.count)))

    def arguments(self, at: IntArray) -> list[str | None]:
        texts: list[str | None] = [None] * len(at) if self.args is None else self.args.take(pa.array(at)).to_pylist()
        return [self.replaced.get(row, text) for row, text in zip(at.tolist(), texts, strict=True)]

    def replace(self, at: IntArray, args: list[str | None]) -> None:
        self.replaced.update(zip(at.tolist(), args, strict=True))
        if len(self.replaced) * _ROWS_PER_REPLACEMENT > self.count:
            self._settle()

    def without(self, rows: IntArray) -> list[Rows]:
        """Return all rows except ``rows``, which must be ascending. The result is a list of the parts between ``rows``.
        The parts share the memory of this object. If there are more than _MAX_PARTS parts, the list contains one copy
        of all remaining rows instead."""
        if not len(rows):
            return [self]
        first, end = np.append(0, rows + 1), np.append(rows, self.count)
        between = np.flatnonzero(end > first)
        if len(between) > _MAX_PARTS:
            self._settle()
            remains = np.ones(self.count, np.bool_)
            remains[rows] = False
            return [self._picked(remains, None if self.args is None else self.args.filter(pa.array(remains)), {})]
        parts = []
        for start, stop in zip(first[between].tolist(), end[between].tolist(), strict=True):
            args = None if self.args is None else self.args.slice(start, stop - start)
            replaced = {row - start: text for row, text in self.replaced.items() if start <= row < stop}
            parts.append(self._picked(slice(start, stop), args, replaced))
        return parts

    def _settle(self) -> None:
        if not self.replaced:
            return
        mask = np.zeros(self.count, np.bool_)
        mask[list(self.replaced)] = True
        texts = pa.array([self.replaced[row] for row in sorted(self.replaced)], pa.string())
        args = pa.nulls(self.count, pa.string()) if self.args is None else self.args
        self.args, self.replaced = pc.replace_with_mask(args, pa.array(mask), texts), {}

    def _picked(self, rows: slice | BoolArray, args: pa.Array | None, replaced: dict[int, str | None]) -> Rows:
        origin = self.origin[rows]
        integers = {name: values[rows] for name, values in self.integers.items()}
        texts = {name: codes[rows] for name, codes in self.texts.items()}
        return Rows(len(origin), origin, integers, texts, args, replaced)
