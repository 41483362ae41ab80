"""What the scanner hands to the recorder, and how it becomes rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, integer
from perfkit_core.readers.chrome.reference_rows import as_text, of_label
from perfkit_core.readers.chrome.rows import (
    ARGUMENT_INTEGERS,
    ARGUMENT_TEXTS,
    Codes,
    Numbers,
    Origins,
    Rows,
    Vocabulary,
)

START, DURATION, FIRST_INTEGER = 0, 1, 2
"""Rows of ``numbers``; the last one is the offset."""
ORIGIN, FIRST_TEXT = 0, 1
"""Rows of ``codes``."""


@dataclass(slots=True)
class Words:
    """What the numbers of one scanner mean. Lists grow as new numbers come up."""

    categories: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    tokens: list[Any] = field(default_factory=list)
    texts: list[Any] = field(default_factory=list)
    pairs: list[tuple[str, str, Label]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    origins: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Pair, token of the process and of the thread, place."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows as scanned: ``numbers[c]`` and ``codes[c]`` of shape (rows,), None where an optional column holds nothing.

    ``rest`` is the text of arguments without column, ``slow`` (row, position, text) of events that the reference has to
    read; ``recoded`` are the arguments of some rows in place of ``rest``. The codes are numbers of ``words``.
    """

    words: Words
    rows: int
    numbers: tuple[npt.NDArray[np.int64] | None, ...]
    codes: tuple[npt.NDArray[np.int32] | None, ...]
    rest: npt.NDArray[np.uint8]
    rest_ends: npt.NDArray[np.int32]
    slow: tuple[tuple[int, int, bytes], ...]
    recoded: dict[int, str]


@dataclass(frozen=True, slots=True)
class Portion:
    """Stretches of rows in the order of the file, and the events of each that the reference has to read."""

    stretches: tuple[Stretch, ...]
    slow: tuple[list[ChromeEvent], ...]


class Meanings:
    """What the numbers of one scanner's words are in the columns. Follows the words as they grow."""

    def __init__(
        self, words: Words, dialect: Dialect, origins: Origins, vocabularies: Mapping[str, Vocabulary]
    ) -> None:
        self._words, self._dialect, self._vocabularies = words, dialect, vocabularies
        self._known, self._origins = origins, Numbers(np.int32)
        self._texts: dict[str, dict[int, int]] = {column: {} for column in ARGUMENT_TEXTS}

    def rows(self, stretch: Stretch) -> Rows:
        """The rows of a stretch; those of ``stretch.slow`` hold nothing that counts."""
        self._follow()
        codes, numbers = stretch.codes, stretch.numbers
        known = self._origins.array() if len(self._origins) else np.zeros(1, np.int32)
        integers = {"start_ns": _known(numbers[START]), "dur_ns": _known(numbers[DURATION])}
        for column, values in zip((*ARGUMENT_INTEGERS, "offset_ns"), numbers[FIRST_INTEGER:], strict=True):
            if values is not None:
                integers[column] = values
        texts: dict[str, Codes] = {}
        for column, found in zip(ARGUMENT_TEXTS, codes[FIRST_TEXT:], strict=True):
            if found is not None:
                texts[column] = self._text_codes(column, found)
        part = Rows(stretch.rows, known[_known(codes[ORIGIN])], integers, texts, _args(stretch))
        if stretch.recoded:
            part.replace(np.array(list(stretch.recoded), np.int64), list(stretch.recoded.values()))
        return part

    def _follow(self) -> None:
        """Take up what the scanner has met since."""
        words = self._words
        for pair, process, thread, place in words.origins[len(self._origins) :]:
            category, name, label = words.pairs[pair]
            pid = tid = None
            if label.backend is None:
                pid, tid = integer(words.tokens[process]), self._dialect.thread(words.tokens[thread])
            origin = of_label(label, category, name, words.places[place], pid, tid)
            self._origins.append(self._known.number(origin))

    def _text_codes(self, column: str, numbers: Codes) -> Codes:
        """Only texts that occur in a column enter its vocabulary."""
        known, vocabulary = self._texts[column], self._vocabularies[column]
        distinct, place = np.unique(numbers, return_inverse=True)
        for number in distinct.tolist():
            if number >= 0 and number not in known:
                known[number] = vocabulary.number(as_text(self._words.texts[number]))
        return np.array([known.get(number, -1) for number in distinct.tolist()], np.int32)[place.reshape(-1)]


def _known(column: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    assert column is not None  # only optional columns may be missing
    return column


def _args(stretch: Stretch) -> pa.Array | None:
    """The arguments without column; null where there are none."""
    if not len(stretch.rest):
        return None
    known = stretch.rest_ends[1:] > stretch.rest_ends[:-1]
    bitmap = pa.py_buffer(np.packbits(known, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(stretch.rest_ends), pa.py_buffer(stretch.rest)]
    return pa.Array.from_buffers(pa.string(), stretch.rows, buffers)
