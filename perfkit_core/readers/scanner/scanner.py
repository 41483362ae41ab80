"""The scanner reads events from JSON text into columns. Compiled code does this; the scanner owns and enlarges its
memory. The dialect is called once for each distinct pair of category and name, and once for each distinct device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit_core.base.algorithms.arrays import allocate
from perfkit_core.readers.chrome.dialect import UNDECODABLE, Dialect, Label, ScanRules
from perfkit_core.readers.chrome.event_rows import (
    FIRST_INTEGER,
    FIRST_TEXT,
    Skipped,
    SlowEvent,
    Stretch,
    Words,
    counted,
)
from perfkit_core.readers.chrome.rows import ARGUMENT_INTEGERS, ARGUMENT_TEXTS, COPIED, NULL
from perfkit_core.readers.scanner import events, state
from perfkit_core.readers.scanner.tokens import PAD
from perfkit_core.trace.model import schema

_MIN_ROWS: Final = 1 << 13
_MAX_ROWS: Final = 1 << 15
"""Maximum number of rows that are read together. More rows do not fit the caches. Fewer rows need more calls."""
_ROW_BYTES: Final = 192
"""A buffer gets one row for this many bytes of text. Few events are shorter, so the rows are usually enough."""


class ScannerMemory:
    def __init__(self, dialect: Dialect, rules: ScanRules) -> None:
        self.record = np.zeros(1, state.MEMORY)[0]
        links = [category.encode() for category in dialect.link_categories]
        self.record["link_categories"] = len(links)
        self.interners = state.interners(self.record, links)
        self.pairs, self.places = state.Keys(self.record["pairs"]), state.Keys(self.record["places"], 0)
        self.lanes, self.origins = state.Keys(self.record["lanes"]), state.Keys(self.record["origins"])
        self._aux = np.zeros(state.AUX, np.int64)
        self._per_key = np.zeros((4, 0), np.int64)
        self._following = np.zeros((2, 0), np.int64)
        self._per_pair = np.zeros((2, 0), np.int64)
        self.record["aux"], self.record["glued"] = self._aux.ctypes.data, rules.glued_durations
        self.record["stream"] = ARGUMENT_INTEGERS.index("stream")
        self.record["empty_keys"] = len(rules.dropped_if_empty)
        self.record["slow_names"] = int.from_bytes(rules.reference_names, "little")
        self._fit()
        offset = (rules.offset_argument,) if rules.offset_argument else ()
        declared = (*dialect.arguments, *rules.dropped, *rules.dropped_if_empty, *rules.device_arguments, *offset)
        keys = list(dict.fromkeys(declared))
        self.interners["arguments"] = state.Interner(self.record["arguments"], *(key.encode() for key in keys))
        for number, key in enumerate(keys):
            self._per_key[0, number] = _action(dialect, rules, key)
            if key in rules.device_arguments:
                self._per_key[1, number] = rules.device_arguments.index(key)

    def set_pair(self, number: int, flags: int, device_class: int) -> None:
        """Store the flags of pair ``number`` (category, name). ``device_class`` is -1 if its events have no device."""
        self._per_pair[:, number] = flags, device_class

    def grow(self) -> None:
        for interner in self.interners.values():
            if interner.full:
                interner.grow()
        for table in (self.pairs, self.places, self.lanes, self.origins):
            if len(table) >= table.capacity:
                table.grow()
        self._fit()

    def _fit(self) -> None:
        count = max(self.interners["tops"].capacity, self.interners["arguments"].capacity)
        self._per_key = _wider(self._per_key, count, (state.REST, -1, 0, 0))
        self._per_pair = _wider(self._per_pair, self.pairs.capacity, (state.UNKNOWN_PAIR, -1))
        self._following = _wider(self._following, state.CONTEXTS * (count + 1), (-1, -1))
        rows = (*self._per_key, *self._per_pair, *self._following)
        names = (
            "actions", "aux_of", "seen_tops", "seen_arguments", "flags", "device_class", "next_tops", "next_arguments",
        )  # fmt: skip
        for name, row in zip(names, rows, strict=True):
            self.record[name] = row.ctypes.data
        self.record["keys"], self.record["pairs_known"] = count, self.pairs.capacity


def _action(dialect: Dialect, rules: ScanRules, key: str) -> int:
    column = dialect.arguments.get(key)
    if key in rules.dropped:
        return state.DROPPED
    if key in rules.dropped_if_empty:
        return state.DROPPED_IF_EMPTY
    if key == rules.offset_argument:
        return state.OFFSET
    if column == "stream":
        return state.STREAM_OF_DEVICE
    if column in ARGUMENT_INTEGERS:
        first = state.NOT_NEGATIVE if key in rules.not_negative else state.INTEGER
        first = state.COPIED if column in COPIED else first
        return first + ARGUMENT_INTEGERS.index(column)
    return state.TEXT + ARGUMENT_TEXTS.index(column) if column in ARGUMENT_TEXTS else state.REST


def _wider(rows: npt.NDArray[np.int64], count: int, fill: tuple[int, ...]) -> npt.NDArray[np.int64]:
    added = np.repeat(np.array(fill, np.int64)[:, None], count - rows.shape[1], axis=1)
    return np.ascontiguousarray(np.concatenate([rows, added], axis=1))


class ScannerColumns:
    def __init__(self) -> None:
        self.record = np.zeros(1, state.COLUMNS)[0]
        self._make(0, 0)

    @property
    def rows(self) -> int:
        return int(self.record["rows"])

    @property
    def filled(self) -> bool:
        """Whether events were read since the last call of :meth:`taken`."""
        return any(self.record[name] for name in ("rows", "links", "metadata", "blanks"))

    def make_room(self, text_bytes: int) -> None:
        """Allocate memory to scan ``text_bytes`` bytes of a file. The memory is large enough for the arguments of all
        events, and usually for all rows. Call :meth:`taken` first, because this method discards all rows in use."""
        if len(self._rest) < text_bytes:
            self._make(text_bytes, min(max(text_bytes // _ROW_BYTES, _MIN_ROWS), _MAX_ROWS))

    def drain(self, words: Words, buffer: npt.NDArray[np.uint8]) -> Stretch:
        """Return a copy of the rows in use, and make their memory free for new rows."""
        used = ("rows", "text", "slow_rows", "recoded_rows", "links", "metadata", "blanks", "link_end_rows")
        rows, text, slow, recoded, *skipped = (int(self.record[name]) for name in used)
        for name in used:
            self.record[name] = 0
        if self.record["used"]:  # a discarded event left values in the first unused row
            self._numbers[FIRST_INTEGER:, rows : rows + 1] = NULL
            self._codes[FIRST_TEXT:, rows : rows + 1] = -1
            self.record["used"] = 0
        aside = tuple(
            SlowEvent(row, start, buffer[start:end].tobytes(), Skipped(*before))
            for row, start, end, *before in self._slow[:slow].tolist()
        )
        return Stretch(
            words, rows, _moved(self._numbers[:, :rows], FIRST_INTEGER, NULL),
            _moved(self._codes[:, :rows], FIRST_TEXT, -1), self._rest[:text].copy(),
            self._rest_ends[: rows + 1].copy(), aside, dict.fromkeys(self._recoded[:recoded].tolist(), ""),
            Skipped(*skipped), self._link_ends[: skipped[-1]].copy(),
        )  # fmt: skip

    def _make(self, text_bytes: int, rows: int) -> None:
        self._numbers = np.full((FIRST_INTEGER + len(ARGUMENT_INTEGERS) + 1, rows), NULL, np.int64)
        self._codes = np.full((FIRST_TEXT + len(ARGUMENT_TEXTS), rows), -1, np.int32)
        self._rest, self._rest_ends = allocate(text_bytes, np.uint8), np.zeros(rows + 1, np.int32)
        self._slow, self._recoded = np.empty((rows, state.SLOW_CELLS), np.int64), np.empty(rows, np.int64)
        self._link_ends = np.empty((rows, state.LINK_CELLS), np.int64)
        for name in ("numbers", "codes", "rest", "rest_ends", "slow", "recoded", "link_ends"):
            self.record[name] = getattr(self, f"_{name}").ctypes.data
        self.record["capacity"] = rows
        self.record["number_rows"], self.record["code_rows"] = len(self._numbers), len(self._codes)


def _moved(columns: npt.NDArray[Any], first_optional: int, missing: int) -> tuple[npt.NDArray[Any] | None, ...]:
    """Return a copy of each column, None if it is optional and empty. Then fill optional columns with ``missing``."""
    copies: list[npt.NDArray[Any] | None] = []
    for number, column in enumerate(columns):
        filled = number < first_optional or bool((column != missing).any())
        copies.append(column.copy() if filled else None)
        if filled and number >= first_optional:
            column[:] = missing
    return tuple(copies)


@dataclass(frozen=True, slots=True)
class Scanned:
    status: int
    position: int
    stretches: tuple[Stretch, ...]


class Scanner:
    """Scans one buffer after the other. Only one thread may use it at a time. A name keeps its id in all buffers."""

    def __init__(self, dialect: Dialect, labelled: dict[tuple[str, str], tuple[Label, bool]] | None = None) -> None:
        """Several scanners of a file may share ``labelled``, the labels of pairs of category and name, with whether the
        reference reader must read their events."""
        assert dialect.scan_rules is not None
        self.words = Words()
        self._dialect, self._rules = dialect, dialect.scan_rules
        self._labelled = {} if labelled is None else labelled
        self._labels: dict[Label, int] = {}
        self._memory = ScannerMemory(dialect, self._rules)
        self._columns = ScannerColumns()

    def scan(self, buffer: npt.NDArray[np.uint8], start: int, end: int) -> Scanned:
        """Read the events from the ``{`` at ``start`` to ``end``. At least PAD zero bytes must follow ``end``."""
        memory, columns, stretches = self._memory, self._columns, []
        columns.make_room(len(buffer))
        at, status, labelled = start, events.ROWS_FULL, True
        while status in (events.ROWS_FULL, events.GROW, events.NEW_PAIR):
            status, at = events.scan(buffer.ctypes.data, at, end, memory.record, columns.record)
            if status == events.GROW:
                memory.grow()
            elif status == events.NEW_PAIR:
                labelled = self._label_new_pairs()
                status = status if labelled else events.BROKEN
            if columns.filled and status not in (events.GROW, events.NEW_PAIR):
                stretches.append(columns.drain(self.words, buffer))
        try:
            self._decode_words()
            stretches = [_recoded(stretch) for stretch in stretches]
        except UNDECODABLE:
            self._forget()
            return Scanned(events.BROKEN, start, ())
        if not labelled:
            self._forget()
        return Scanned(status, at, tuple(stretches))

    def _forget(self) -> None:
        """Forget all numbered texts, because one of them cannot be decoded. Results of earlier scans remain valid."""
        self.__init__(self._dialect, self._labelled)  # type: ignore[misc]

    def _label_new_pairs(self) -> bool:
        """Let the dialect label each new pair of category and name. Return False if a pair is not valid text."""
        memory, words, interners = self._memory, self.words, self._memory.interners
        try:
            words.categories += [_string(raw) for raw in interners["categories"].slices(len(words.categories))]
            names = [_string(raw) for raw in interners["names"].slices(len(words.names))]
            # The scanner has already removed durations from the ends of names.
            words.names += names if self._rules.glued_durations else map(self._dialect.clean_name, names)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        for number, key in enumerate(memory.pairs.values(len(words.pairs)), len(words.pairs)):
            counter = bool(key >> 32 & state.OF_COUNTER)
            category, name = words.categories[key >> 32 & ~state.OF_COUNTER], words.names[key & 0xFFFFFFFF]
            label, slow = self._label(category, name)
            label = counted(label) if counter else label
            words.pairs.append((category, name, label))
            on_device = label.backend is not None
            device_class = -1
            if on_device or label.kind == schema.MEMORY:
                device_class = self._labels.setdefault(label, len(self._labels))
            memory.set_pair(number, state.ON_DEVICE * on_device + state.SLOW_PAIR * slow, device_class)
        return True

    def _label(self, category: str, name: str) -> tuple[Label, bool]:
        labelled = self._labelled.get((category, name))
        if labelled is None:
            slow = self._rules.needs_reference is not None and self._rules.needs_reference(category, name)
            labelled = self._labelled[category, name] = self._dialect.label(category, name), slow
        return labelled

    def _decode_words(self) -> None:
        words, memory = self.words, self._memory
        words.tokens += map(msgspec.json.decode, memory.interners["tokens"].slices(len(words.tokens)))
        words.texts += map(msgspec.json.decode, memory.interners["texts"].slices(len(words.texts)))
        labels = list(self._labels)
        for key in memory.places.values(len(words.places)):
            if not words.places:  # the first place is the host
                words.places.append(schema.CPU)
                continue
            label, process, arguments = events.place_parts(key)
            named_tokens = zip(self._rules.device_arguments, arguments, strict=False)
            values = {name: words.tokens[token] for name, token in named_tokens if token}
            words.places.append(self._dialect.device(labels[label], words.tokens[process], values))
        fresh = memory.origins.values(len(words.origins))
        lanes = memory.lanes.values() if fresh else []
        words.origins += [events.origin_parts(key, lanes) for key in fresh]


def _recoded(stretch: Stretch) -> Stretch:
    """Decode the arguments of the rows in ``recoded``, and encode them again. Their text is then the same as that of
    the slower reference reader. Raises one of the errors in UNDECODABLE."""
    if not stretch.recoded:
        return stretch
    ends, rest = stretch.rest_ends, stretch.rest
    texts: dict[int, str] = {}
    for row in stretch.recoded:
        text = rest[ends[row] : ends[row + 1]].tobytes()
        again = msgspec.json.encode(msgspec.json.decode(text))
        if again != text:  # most texts do not change
            texts[row] = again.decode()
    return replace(stretch, recoded=texts)


def _string(raw: bytes) -> str:
    return msgspec.json.decode(b'"' + raw + b'"', type=str)


def padded(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data + bytes(PAD), np.uint8)
