"""Stretches of scanned events as rows: the numbers of a scanner become those of the whole recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
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
        self._pids: list[int] = []
        self._tids: list[int] = []
        self._places: list[int] = []
        self._texts: dict[str, dict[int, int]] = {column: {} for column in ARGUMENT_TEXTS}

    def rows(self, stretch: Stretch) -> Rows:
        """The rows of a stretch; those of ``stretch.slow`` hold nothing that counts."""
        self._follow()
        codes, numbers = stretch.codes, stretch.numbers
        pair = codes[PAIR]
        for row, _, _ in stretch.slow:
            codes[:FIRST_TEXT, row] = 0
        integers = {"start_ns": numbers[START], "dur_ns": numbers[DURATION]}
        for i, column in enumerate((*ARGUMENT_INTEGERS, "offset_ns"), FIRST_INTEGER):
            if (numbers[i] != NULL).any():
                integers[column] = numbers[i]
        on_host = _spread(self._pairs["on_host"], pair, np.int64) != 0
        integers["pid"] = np.where(on_host, _spread(self._pids, codes[PROCESS], np.int64), NULL)
        integers["tid"] = np.where(on_host, _spread(self._tids, codes[THREAD], np.int64), NULL)
        integers["step"] = _spread(self._pairs["step"], pair, np.int64)
        texts = {column: _spread(self._pairs[column], pair, np.int32) for column in _OF_PAIR}
        texts["device"] = _spread(self._places, codes[PLACE], np.int32)
        for i, column in enumerate(ARGUMENT_TEXTS, FIRST_TEXT):
            if codes[i].max(initial=-1) >= 0:
                texts[column] = self._text_codes(column, codes[i])
        return Rows(stretch.rows, integers, texts, _args(stretch))

    def _follow(self) -> None:
        """Take up what the scanner has met since."""
        words, vocabularies = self._words, self._vocabularies
        for category, name, label in words.pairs[len(self._pairs["step"]) :]:
            found = {"name": name, "category": category or None, **label._asdict()}
            for column in _OF_PAIR:
                self._pairs[column].append(vocabularies[column].number(found[column]))
            self._pairs["step"].append(NULL if label.step is None else label.step)
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
