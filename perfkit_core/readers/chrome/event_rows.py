"""Conversion of events to rows, in two ways that give equal rows.

- The reference reader converts events one by one, in Python (:class:`RowLists`).
- The scanner reads most events faster. Each thread has its own scanner, which assigns its own numbers to names and
  other texts. :class:`Translation` replaces them with numbers for the whole recording."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, integer
from perfkit_core.readers.chrome.process_ids import ProcessIds
from perfkit_core.readers.chrome.rows import (
    ARGUMENT_INTEGERS,
    ARGUMENT_TEXTS,
    COPIED,
    NULL,
    Codes,
    Origin,
    Origins,
    Rows,
    Vocabulary,
)
from perfkit_core.trace.model import schema

_COUNTER: Final = "C"
_INTEGERS: Final = ("offset_ns", *ARGUMENT_INTEGERS)
_EMPTY: Final = ("", "[]", "{}")
_LISTS: Final = ("shapes", "dtypes")
_SIZES: Final = re.compile(r"\d{1,18}(?:,\d{1,18})*")


class RowLists:
    """The cells of some events. A column has the cells that are not empty, by the number of their row."""

    def __init__(self, dialect: Dialect, labels: dict[tuple[str, str], Label], ids: ProcessIds) -> None:
        self._dialect, self._labels, self._ids = dialect, labels, ids
        self._columns = dialect.arguments
        self._integers: dict[str, dict[int, int]] = {column: {} for column in _INTEGERS}
        self.texts: dict[str, dict[int, str]] = {column: {} for column in ARGUMENT_TEXTS}
        self.origins: list[Origin] = []
        self._args: list[str | None] = []

    def take(self, event: ChromeEvent) -> None:
        dialect = self._dialect
        name = dialect.clean_name(event.name if isinstance(event.name, str) else str(event.name))
        category = event.cat if isinstance(event.cat, str) else ""
        label = self._labels.get((category, name))
        if label is None:
            label = self._labels[category, name] = dialect.label(category, name)
        args = event.args if isinstance(event.args, dict) else {}
        label = dialect.refine(label, args)
        if event.ph == _COUNTER:
            label = counted(label)
        on_host = label.backend is None
        device = schema.CPU
        if not on_host or label.kind == schema.MEMORY:
            device = dialect.device(label, event.pid, args)
        row = len(self.origins)
        pid, tid = thread_of(event.pid, event.tid, dialect, self._ids) if on_host else (None, None)
        self.origins.append(origin_of(label, category, name, device, pid, tid, self._ids.rank(event.pid)))
        filled: set[str] = set()
        rest = {}  # the arguments without a column, which are stored as JSON
        for key, value in args.items():
            column = self._columns.get(key)
            if column == "stream" and on_host:  # for a host call, this is the stream of the launched work
                column = None
            if column is None or column in filled or (value is not None and not self._put(column, row, value)):
                rest[key] = value
                continue
            if value is not None:
                filled.add(column)
            if column in COPIED:
                rest[key] = value
        self._args.append(msgspec.json.encode(rest).decode() if rest else None)

    def _put(self, column: str, row: int, value: Any) -> bool:
        """Set a cell. Return False if the value is not a 64-bit integer, or is the integer that stands for null."""
        integers = self._integers.get(column)
        if integers is None:
            text = as_text(column, value)
            if text is not None:
                self.texts[column][row] = text
            return True
        number = integer(value)
        if number is None or number == NULL:
            return False
        integers[row] = number
        return True

    def rows(
        self, start_ns: IntArray, dur_ns: IntArray, origins: Origins, vocabularies: Mapping[str, Vocabulary]
    ) -> Rows:
        integers, texts = {"start_ns": start_ns, "dur_ns": dur_ns}, {}
        for column, numbers in self._integers.items():
            if numbers:
                integers[column] = _spread(np.full(len(self._args), NULL, np.int64), numbers)
        for column, cells in self.texts.items():
            if cells:
                codes = map(vocabularies[column].number, cells.values())
                texts[column] = _spread(np.full(len(self._args), -1, np.int32), dict(zip(cells, codes, strict=True)))
        args = pa.array(self._args, pa.string()) if any(value is not None for value in self._args) else None
        origin = np.fromiter(map(origins.number, self.origins), np.int32, len(self.origins))
        return Rows(len(self._args), origin, integers, texts, args)


def counted(label: Label) -> Label:
    """Return the label of a counter, whose category and name have ``label``."""
    return label._replace(kind=schema.COUNTER) if label.kind in (schema.OTHER, schema.UNKNOWN) else label


def _spread(column: npt.NDArray[Any], cells: Mapping[int, int]) -> npt.NDArray[Any]:
    column[list(cells)] = list(cells.values())
    return column


def thread_of(process: Any, thread: Any, dialect: Dialect, ids: ProcessIds) -> tuple[int | None, int | None]:
    """Return the numbers of the process and thread of a host event from their recorded ids."""
    tid = dialect.thread(thread)
    return ids.process(process), ids.number(thread) if tid is None else tid


def origin_of(
    label: Label, category: str, name: str, device: str, pid: int | None, tid: int | None, rank: int | None
) -> Origin:
    """Return the Origin of an event: values that it shares with many other events, such as its name and thread. Empty
    texts become None, except an empty name."""
    return Origin(
        name, label.kind or None, category or None, device or None, label.phase or None, label.layer or None,
        label.copy_kind or None, pid, tid, None if label.step is None else integer(label.step), rank,
    )  # fmt: skip


def as_text(column: str, value: Any) -> str | None:
    """Return a value as a cell of a text column. A string stays the same, other values become JSON. Empty strings and
    empty lists become None. Shapes and types are always JSON lists: some writers (torch_npu) record a text with ``;``
    between the arguments and ``,`` between the sizes of a tensor."""
    if value is None:
        return None
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if text in _EMPTY:
        return None
    if column not in _LISTS or isinstance(value, (list, dict)):
        return text
    with contextlib.suppress(msgspec.DecodeError):
        if isinstance(msgspec.json.decode(text), (list, dict)):
            return text
    items: list[Any] = [item.strip() for item in text.split(";")]
    if column == "shapes":
        items = [list(map(int, item.split(","))) if _SIZES.fullmatch(item) else item or [] for item in items]
    return msgspec.json.encode(items).decode()


START, DURATION, FIRST_INTEGER = 0, 1, 2
"""Indexes in ``Stretch.numbers``. The columns ARGUMENT_INTEGERS begin at FIRST_INTEGER. ``offset_ns`` comes last."""
ORIGIN, FIRST_TEXT = 0, 1
"""Indexes in ``Stretch.codes``. The columns ARGUMENT_TEXTS begin at FIRST_TEXT."""


@dataclass(slots=True)
class Words:
    """Lists of values that one scanner numbered. The number of a value is its index in its list. The lists may grow."""

    categories: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    tokens: list[Any] = field(default_factory=list)  # process and thread ids, and arguments that identify devices
    texts: list[Any] = field(default_factory=list)  # values of text columns, such as shapes
    pairs: list[tuple[str, str, Label]] = field(default_factory=list)  # distinct pairs of category and name
    places: list[str] = field(default_factory=list)  # devices
    origins: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Each origin as four indexes: pair in ``pairs``, process and thread in ``tokens``, place in ``places``."""


class Skipped(NamedTuple):
    """Numbers of events that the scanner counts and skips."""

    links: int = 0  # flow events
    metadata: int = 0  # metadata events that perfkit does not keep
    blanks: int = 0  # empty objects
    link_ends: int = 0  # flow events that are kept as ends of links


class SlowEvent(NamedTuple):
    """An event that the scanner left to the reference reader."""

    row: int
    position: int
    text: bytes
    skipped: Skipped  # what the scanner skipped in this stretch before the event


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive rows that the scanner read."""

    words: Words
    rows: int
    numbers: tuple[npt.NDArray[np.int64] | None, ...]  # integer columns of shape (rows,), or None if empty
    codes: tuple[npt.NDArray[np.int32] | None, ...]  # columns, as indexes in lists of ``words``; None if empty
    rest: npt.NDArray[np.uint8]  # JSON text of the arguments that have no column
    rest_ends: npt.NDArray[np.int32]  # row i has the text ``rest[rest_ends[i]:rest_ends[i + 1]]``
    slow: tuple[SlowEvent, ...]
    recoded: dict[int, str]  # for some rows, the text that replaces the text in ``rest``
    skipped: Skipped
    link_ends: npt.NDArray[np.int64]  # shape (ends, 6), with the cells of ``LINK_CELLS``

    def before(self, slow: int) -> Stretch:
        """Return the rows before the event ``slow[slow]``."""
        rows, _, _, skipped = self.slow[slow]
        ends = self.rest_ends[: rows + 1]
        numbers = tuple(None if column is None else column[:rows] for column in self.numbers)
        codes = tuple(None if column is None else column[:rows] for column in self.codes)
        recoded = {row: text for row, text in self.recoded.items() if row < rows}
        rest, before = self.rest[: ends[-1]], self.slow[:slow]
        link_ends = self.link_ends[: skipped.link_ends]
        return Stretch(self.words, rows, numbers, codes, rest, ends, before, recoded, skipped, link_ends)


@dataclass(frozen=True, slots=True)
class Portion:
    """Stretches in file order. ``slow[i]`` has the events of ``stretches[i].slow``, decoded from JSON."""

    stretches: tuple[Stretch, ...]
    slow: tuple[list[ChromeEvent], ...]


_UNSEEN: Final = -2
_ORIGIN: Final = "origin"


class Translation:
    """Replaces the numbers that one scanner assigned (see :class:`Words`) with numbers for the whole recording. The new
    numbers are assigned in row order, so they do not depend on the number of threads."""

    def __init__(
        self,
        words: Words,
        dialect: Dialect,
        origins: Origins,
        vocabularies: Mapping[str, Vocabulary],
        ids: ProcessIds,
    ) -> None:
        self._words, self._dialect, self._ids = words, dialect, ids
        self._threads: dict[tuple[int, int], tuple[int | None, int | None]] = {}
        """Numbers of the process and thread, by the scanner's numbers of their ids."""
        self._numbered: dict[str, Any] = {_ORIGIN: origins, **vocabularies}
        # For each column, ``array[n]`` is the recording's number for the scanner's number n, or _UNSEEN if no row has
        # used n yet. The last item stays -1, because n = -1 means a missing text.
        self._numbers = {column: np.array([-1], np.int32) for column in self._numbered}

    def rows(self, stretch: Stretch, lists: RowLists, at: IntArray) -> Rows:
        """Return the rows of ``stretch``. The rows with the indexes ``at`` are placeholders: the scanner could not read
        these events. The caller must put the events of ``lists`` there."""
        origin, start_ns, dur_ns = stretch.codes[ORIGIN], stretch.numbers[START], stretch.numbers[DURATION]
        assert origin is not None  # these three columns are never empty
        assert start_ns is not None
        assert dur_ns is not None
        integers = {"start_ns": start_ns, "dur_ns": dur_ns}
        for column, values in zip((*ARGUMENT_INTEGERS, "offset_ns"), stretch.numbers[FIRST_INTEGER:], strict=True):
            if values is not None:
                integers[column] = values
        texts = {
            column: self._translated(column, codes, stretch, {int(at[row]): text for row, text in slow.items()})
            for (column, slow), codes in zip(lists.texts.items(), stretch.codes[FIRST_TEXT:], strict=True)
            if codes is not None
        }
        args = None
        if len(stretch.rest):
            bits = pa.py_buffer(np.packbits(stretch.rest_ends[1:] > stretch.rest_ends[:-1], bitorder="little"))
            buffers = [bits, pa.py_buffer(stretch.rest_ends), pa.py_buffer(stretch.rest)]
            args = pa.Array.from_buffers(pa.string(), stretch.rows, buffers)
        origin = self._translated(_ORIGIN, origin, stretch, dict(zip(at.tolist(), lists.origins, strict=True)))
        part = Rows(stretch.rows, origin, integers, texts, args)
        if stretch.recoded:
            part.replace(np.array(list(stretch.recoded), np.int64), list(stretch.recoded.values()))
        return part

    def _translated(
        self, column: str, codes: Codes, stretch: Stretch, slow: Mapping[int, Origin | str | None]
    ) -> Codes:
        """Return ``codes`` with each of the scanner's numbers replaced by the recording's number for the same value.
        ``slow`` has the values of the rows that the scanner could not read. New values are numbered in row order,
        including those of ``slow``. The caller must write the numbers of ``slow`` into the result."""
        numbers, words = self._numbers[column], self._words
        more = len(words.origins if column == _ORIGIN else words.texts) + 1 - len(numbers)
        if more:
            numbers = np.concatenate([numbers[:-1], np.full(more, _UNSEEN, np.int32), numbers[-1:]])
            self._numbers[column] = numbers
        translated = numbers[codes]
        unseen = translated == _UNSEEN
        unseen[[event.row for event in stretch.slow]] = False
        new: dict[int, int] = {}
        if unseen.any():
            rows = np.flatnonzero(unseen)
            distinct, first = np.unique(codes[rows], return_index=True)
            new = dict(zip(rows[first].tolist(), distinct.tolist(), strict=True))
        for row in sorted((*new, *slow)):
            if row in new:
                numbers[new[row]] = self._numbered[column].number(self._value(column, new[row]))
            else:
                self._numbered[column].number(slow[row])
        return numbers[codes] if new else translated

    def _value(self, column: str, number: int) -> Origin | str | None:
        words = self._words
        if column != _ORIGIN:
            return as_text(column, words.texts[number])
        pair, process, thread, device = words.origins[number]
        category, name, label = words.pairs[pair]
        token, pid, tid = words.tokens[process], None, None
        if label.backend is None:
            if (process, thread) not in self._threads:
                self._threads[process, thread] = thread_of(token, words.tokens[thread], self._dialect, self._ids)
            pid, tid = self._threads[process, thread]
        return origin_of(label, category, name, words.places[device], pid, tid, self._ids.rank(token))
