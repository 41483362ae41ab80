"""What many events share, kept once: an event has the number of its origin instead of ten texts and integers.

Names, categories and threads repeat a thousand times over in every recording. Only when a table is made does each event
get columns of its own.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms.arrays import BLOCK, IntArray, spread
from perfkit_core.readers.chrome.portion import NULL
from perfkit_core.readers.chrome.rows import Vocabulary, encoded


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


TEXTS: Final = ("name", "kind", "category", "device", "phase", "layer", "copy_kind")
INTEGERS: Final = ("pid", "tid", "step")


class Origins:
    """Numbers of distinct origins, as they come."""

    def __init__(self) -> None:
        self._numbers: dict[Origin, int] = {}
        self._list: list[Origin] = []
        self._vocabularies = {column: Vocabulary() for column in TEXTS}
        self._texts: dict[str, Numbers] = {column: Numbers(np.int32) for column in TEXTS}
        self._integers: dict[str, Numbers] = {column: Numbers(np.int64) for column in INTEGERS}

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
        """A column of TEXTS for events of these origins; None where it holds nothing. With ``used``, its dictionary
        holds only what occurs."""
        vocabulary, codes = self._vocabularies[column], self._texts[column].array()
        values = vocabulary.texts()
        if used is not None:
            values, codes = vocabulary.compact(codes, used)
        return encoded(spread(codes, origin), values) if len(values) else None

    def integers(self, column: str, origin: npt.NDArray[Any]) -> IntArray | None:
        """A column of INTEGERS for events of these origins, NULL where unknown; None where it holds nothing."""
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
