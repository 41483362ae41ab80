"""Stretches of scanned events as rows: the numbers of a scanner become those of the whole recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.sources.dialect import Dialect, integer
from perfkit_core.sources.portion import (
    ARGUMENT_INTEGERS,
    ARGUMENT_TEXTS,
    DURATION,
    FIRST_INTEGER,
    FIRST_TEXT,
    NULL,
    PAIR,
    PLACE,
    PROCESS,
    START,
    THREAD,
    Stretch,
    Words,
)
from perfkit_core.sources.reference_rows import as_text
from perfkit_core.sources.rows import Rows
from perfkit_core.sources.vocabulary import Codes, Vocabulary

_OF_PAIR: Final = ("name", "kind", "category", "phase", "layer", "copy_kind")


class Meanings:
    """What the numbers of one scanner's words are in the columns. Follows the words as they grow."""

    def __init__(self, words: Words, dialect: Dialect, vocabularies: Mapping[str, Vocabulary]) -> None:
        self._words, self._dialect, self._vocabularies = words, dialect, vocabularies
        self._pairs: dict[str, list[int]] = {column: [] for column in (*_OF_PAIR, "step", "on_host")}
        self._used: set[str] = set()
        self._pids: list[int] = []
        self._tids: list[int] = []
        self._places: list[int] = []
        self._texts: dict[str, dict[int, int]] = {column: {} for column in ARGUMENT_TEXTS}

    def rows(self, stretch: Stretch) -> Rows:
        """The rows of a stretch; those of ``stretch.slow`` hold nothing that counts."""
        self._follow()
        codes, numbers = stretch.codes, stretch.numbers
        pair, process, thread, place = (_known(codes[i]) for i in (PAIR, PROCESS, THREAD, PLACE))
        for row, _, _ in stretch.slow:
            pair[row] = process[row] = thread[row] = place[row] = 0
        integers = {"start_ns": _known(numbers[START]), "dur_ns": _known(numbers[DURATION])}
        for column, values in zip((*ARGUMENT_INTEGERS, "offset_ns"), numbers[FIRST_INTEGER:], strict=True):
            if values is not None:
                integers[column] = values
        off_host = ~_spread(self._pairs["on_host"], pair, np.bool_)
        for column, table, tokens in (("pid", self._pids, process), ("tid", self._tids, thread)):
            integers[column] = _spread(table, tokens, np.int64)
            integers[column][off_host] = NULL
        if "step" in self._used:
            integers["step"] = _spread(self._pairs["step"], pair, np.int64)
        texts: dict[str, Codes] = {
            column: _spread(self._pairs[column], pair, np.int32) for column in _OF_PAIR if column in self._used
        }
        texts["device"] = _spread(self._places, place, np.int32)
        for column, found in zip(ARGUMENT_TEXTS, codes[FIRST_TEXT:], strict=True):
            if found is not None:
                texts[column] = self._text_codes(column, found)
        return Rows(stretch.rows, integers, texts, _args(stretch))

    def _follow(self) -> None:
        """Take up what the scanner has met since."""
        words, vocabularies = self._words, self._vocabularies
        for category, name, label in words.pairs[len(self._pairs["step"]) :]:
            found = {"name": name, "category": category or None, **label._asdict()}
            for column in _OF_PAIR:
                self._pairs[column].append(vocabularies[column].number(found[column]))
            self._pairs["step"].append(NULL if label.step is None else label.step)
            self._used.update(column for column in (*_OF_PAIR, "step") if found[column] is not None)
            self._pairs["on_host"].append(label.backend is None)
        for token in words.tokens[len(self._pids) :]:
            self._pids.append(_or_null(integer(token)))
            self._tids.append(_or_null(self._dialect.thread(token)))
        self._places += [vocabularies["device"].number(place) for place in words.places[len(self._places) :]]

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


def _spread(table: list[int], numbers: Codes, kind: Any) -> Any:
    return np.array(table or [0], kind)[numbers]


def _or_null(value: int | None) -> int:
    return NULL if value is None else value


def _args(stretch: Stretch) -> pa.Array | None:
    """The arguments without column; null where there are none."""
    if not len(stretch.rest):
        return None
    known = stretch.rest_ends[1:] > stretch.rest_ends[:-1]
    bitmap = pa.py_buffer(np.packbits(known, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(stretch.rest_ends), pa.py_buffer(stretch.rest)]
    args = pa.Array.from_buffers(pa.string(), stretch.rows, buffers)
    if not stretch.recoded:
        return args
    mask = np.zeros(stretch.rows, np.bool_)
    mask[list(stretch.recoded)] = True
    return pa.compute.replace_with_mask(args, pa.array(mask), pa.array(list(stretch.recoded.values()), pa.string()))
