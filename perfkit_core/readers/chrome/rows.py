"""Recorded events as columns: rows of a stretch of events, what many events share, and vocabularies of texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.algorithms.arrays import BLOCK, IntArray, spread

ARGUMENT_INTEGERS: Final = (
    "correlation", "external", "stream", "sequence", "bytes", "address", "total_bytes", "flops",
)  # fmt: skip
ARGUMENT_TEXTS: Final = ("shapes", "dtypes", "stack", "module")
"""Columns that arguments may go to."""

NULL: Final = -(2**63)
"""An unknown integer. No recorded one is: 18 digits are the most that is read."""


class Origin(NamedTuple):
    """The cells of an event that others have, too."""

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


ORIGIN_TEXTS: Final = ("name", "kind", "category", "device", "phase", "layer", "copy_kind")
ORIGIN_INTEGERS: Final = ("pid", "tid", "step")


class Origins:
    """Numbers of distinct origins, as they come."""

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}
        self._list: list[Origin] = []
        self._vocabularies = {column: Vocabulary() for column in ORIGIN_TEXTS}
        self._texts: dict[str, Numbers] = {column: Numbers(np.int32) for column in ORIGIN_TEXTS}
        self._integers: dict[str, Numbers] = {column: Numbers(np.int64) for column in ORIGIN_INTEGERS}

    def number(self, origin: Origin) -> int:
        """The number of an origin, a new one when it has none yet."""
        number = self._numbers.setdefault(origin, len(self._list))
        if number == len(self._list):
            self._list.append(origin)
            for column, texts in self._texts.items():
                texts.append(self._vocabularies[column].number(getattr(origin, column)))
            for column, integers in self._integers.items():
                value = getattr(origin, column)
                integers.append(NULL if value is None else value)
        return number

    def known(self, first: int = 0) -> list[Origin]:
        """The origins from number ``first`` on."""
        return self._list[first:]

    def name(self, number: int) -> str | None:
        """The name of the events of an origin."""
        return self._list[number].name

    def used(self, origin: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of them occur among some events, shape (origins,)."""
        found = np.zeros(len(self._list), np.bool_)
        for begin in range(0, len(origin), BLOCK):
            found[origin[begin : begin + BLOCK]] = True
        return found

    def texts(
        self, column: str, origin: npt.NDArray[Any], used: npt.NDArray[np.bool_] | None
    ) -> pa.DictionaryArray | None:
        """A column of ORIGIN_TEXTS for events of these origins; None where it holds nothing. With ``used``, its
        dictionary holds only what occurs."""
        vocabulary, codes = self._vocabularies[column], self._texts[column].array()
        values = vocabulary.texts()
        if used is not None:
            values, codes = vocabulary.compact(codes, used)
        return encoded(spread(codes, origin), values) if len(values) else None

    def integers(self, column: str, origin: npt.NDArray[Any]) -> IntArray | None:
        """A column of ORIGIN_INTEGERS for events of these origins, NULL where unknown; None where it holds nothing."""
        values = self._integers[column].array()
        return spread(values, origin) if (values != NULL).any() else None


class Numbers:
    """Numbers that come one by one, as an array."""

    def __init__(self, kind: Any) -> None:
        self._list: list[int] = []
        self._array: npt.NDArray[Any] = np.empty(0, kind)

    def __len__(self) -> int:
        return len(self._list)

    def append(self, number: int) -> None:
        """One more."""
        self._list.append(number)

    def array(self) -> npt.NDArray[Any]:
        """All so far, shape (numbers,)."""
        if len(self._array) != len(self._list):
            self._array = np.array(self._list, self._array.dtype)
        return self._array


Codes = npt.NDArray[np.int32]


class Vocabulary:
    """Numbers of texts; -1 is a missing one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._held = pa.array([], pa.string())

    def number(self, text: str | None) -> int:
        """The number of a text, a new one when it has none yet."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def numbers(self, texts: Iterable[str | None]) -> Codes:
        """The numbers of texts, shape (texts,)."""
        return np.fromiter(map(self.number, texts), np.int32)

    def texts(self) -> pa.Array:
        """All of them, in the order of their numbers."""
        if len(self._held) != len(self._numbers):
            self._held = pa.array(self._numbers, pa.string())
        return self._held

    def compact(self, codes: Codes, counted: npt.NDArray[np.bool_] | None = None) -> tuple[pa.Array, Codes]:
        """Only the texts that occur, and the codes that index these. ``counted``: which of the codes count; those of
        the others are good for nothing then. All of shape (codes,)."""
        occurs = np.zeros(len(self._numbers) + 1, np.bool_)
        occurs[codes if counted is None else codes[counted]] = True
        occurs[-1] = False
        if occurs[:-1].all():
            return self.texts(), codes
        place = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
        place[-1] = -1
        held = [text for text, wanted in zip(self._numbers, occurs.tolist(), strict=False) if wanted]
        return pa.array(held, pa.string()), place[codes]


def encoded(codes: Codes, texts: pa.Array) -> pa.DictionaryArray:
    """A dictionary column of codes, negative ones null. Shares the memory of ``codes``."""
    known = codes >= 0
    indices = [None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little")), pa.py_buffer(codes)]
    return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(pa.int32(), len(codes), indices), texts)


INTEGERS: Final = ("start_ns", "dur_ns", "offset_ns", *ARGUMENT_INTEGERS)
TEXTS: Final = ARGUMENT_TEXTS
"""Columns of recorded events, beside ``args`` and those of their origin."""

_SELDOM: Final = 32
"""Where only each so many-th row has other arguments, these are kept aside: a copy of all is dearer."""
_MOST_PARTS: Final = 16
"""More parts of a stretch are dearer than a copy of it."""


@dataclass(slots=True)
class Rows:
    """Events, in the order of the source. ``origin`` are numbers of origins, ``integers`` and ``texts`` (numbers of a
    vocabulary) by column, each of shape (count,); a column that is missing holds nothing. ``args`` are strings, None
    where no event has any; in pieces only where there are more than one array holds. ``replaced`` are those of single
    rows, instead of what ``args`` holds there."""

    count: int
    origin: Codes
    integers: dict[str, IntArray]
    texts: dict[str, Codes]
    args: pa.Array | pa.ChunkedArray | None
    replaced: dict[int, str | None] = field(default_factory=dict)

    def put(self, at: IntArray, other: Rows) -> None:
        """Place the rows of ``other`` at the positions ``at``, shape (other.count,)."""
        self.origin[at] = other.origin
        for name in INTEGERS:
            if name in self.integers or name in other.integers:
                target = self.integers.setdefault(name, np.full(self.count, NULL, np.int64))
                target[at] = other.integers.get(name, NULL)
        for name in TEXTS:
            if name in self.texts or name in other.texts:
                codes = self.texts.setdefault(name, np.full(self.count, -1, np.int32))
                codes[at] = other.texts.get(name, -1)
        self.replace(at, other.arguments(np.arange(other.count)))

    def arguments(self, at: IntArray) -> list[str | None]:
        """The arguments of some rows, as JSON text."""
        found: list[str | None] = [None] * len(at) if self.args is None else self.args.take(pa.array(at)).to_pylist()
        return [self.replaced.get(row, text) for row, text in zip(at.tolist(), found, strict=True)]

    def replace(self, at: IntArray, args: list[str | None]) -> None:
        """Give other arguments to some rows."""
        self.replaced.update(zip(at.tolist(), args, strict=True))
        if len(self.replaced) * _SELDOM > self.count:
            self._settle()

    def without(self, rows: IntArray) -> list[Rows]:
        """All but these rows, which ascend: what lies between them, in the same memory, or one copy where they are
        many."""
        if not len(rows):
            return [self]
        first, end = np.append(0, rows + 1), np.append(rows, self.count)
        between = np.flatnonzero(end > first)
        if len(between) > _MOST_PARTS:
            self._settle()
            kept = np.ones(self.count, np.bool_)
            kept[rows] = False
            return [self._picked(kept, None if self.args is None else self.args.filter(pa.array(kept)), {})]
        return [self._between(int(first[i]), int(end[i])) for i in between]

    def _settle(self) -> None:
        """Put what is replaced into ``args``."""
        if not self.replaced:
            return
        mask = np.zeros(self.count, np.bool_)
        mask[list(self.replaced)] = True
        found = pa.array([self.replaced[row] for row in sorted(self.replaced)], pa.string())
        held = pa.nulls(self.count, pa.string()) if self.args is None else self.args
        self.args, self.replaced = pc.replace_with_mask(held, pa.array(mask), found), {}

    def _between(self, first: int, end: int) -> Rows:
        args = None if self.args is None else self.args.slice(first, end - first)
        replaced = {row - first: text for row, text in self.replaced.items() if first <= row < end}
        return self._picked(slice(first, end), args, replaced)

    def _picked(self, rows: slice | npt.NDArray[np.bool_], args: pa.Array | None, replaced: dict[int, Any]) -> Rows:
        origin = self.origin[rows]
        integers = {name: values[rows] for name, values in self.integers.items()}
        texts = {name: codes[rows] for name, codes in self.texts.items()}
        return Rows(len(origin), origin, integers, texts, args, replaced)
