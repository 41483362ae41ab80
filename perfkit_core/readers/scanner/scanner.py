"""One scanner: buffers in, stretches of columns out, with the dialect asked once for each distinct thing.

Owns the memory that the compiled code of a scanner writes to, and makes it larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.arrays import allocate
from perfkit_core.model import schema
from perfkit_core.model.schema import CPU
from perfkit_core.readers.chrome.dialect import UNDECODABLE, Dialect, Label, ScanRules
from perfkit_core.readers.chrome.rows import ARGUMENT_INTEGERS as INTEGERS
from perfkit_core.readers.chrome.rows import ARGUMENT_TEXTS as TEXTS
from perfkit_core.readers.chrome.rows import NULL
from perfkit_core.readers.chrome.scanned_rows import FIRST_INTEGER, FIRST_TEXT, Stretch, Words
from perfkit_core.readers.scanner import events
from perfkit_core.readers.scanner.events import origin_parts, place_parts
from perfkit_core.readers.scanner.state import (
    AUX,
    COLUMNS,
    CONTEXTS,
    DROPPED,
    DROPPED_IF_EMPTY,
    INTEGER,
    MEMORY,
    NOT_NEGATIVE,
    OFFSET,
    ON_DEVICE,
    REST,
    SLOW_PAIR,
    STREAM_OF_DEVICE,
    TEXT,
    UNKNOWN_PAIR,
    Interner,
    Keys,
    interners,
)
from perfkit_core.readers.scanner.tokens import PAD

_FEWEST_ROWS: Final = 1 << 13
_MOST_ROWS: Final = 1 << 15
"""Rows that are scanned before they are handed out: Python does something for each portion, caches hold so many."""
_ROW_BYTES: Final = 192
"""Events are seldom shorter: so many rows there are in a buffer."""


class ScannerMemory:
    """Owns what a MEMORY record points to."""

    def __init__(self, dialect: Dialect, rules: ScanRules) -> None:
        self.record = np.zeros(1, MEMORY)[0]
        self.interners = interners(self.record)
        self.pairs, self.places = Keys(self.record["pairs"]), Keys(self.record["places"], 0)
        self.lanes, self.origins = Keys(self.record["lanes"]), Keys(self.record["origins"])
        self._aux = np.zeros(AUX, np.int64)
        self._per_key = np.zeros((4, 0), np.int64)
        self._following = np.zeros((2, 0), np.int64)
        self._per_pair = np.zeros((2, 0), np.int64)
        self.record["aux"], self.record["glued"] = self._aux.ctypes.data, rules.glued_durations
        self.record["stream"], self.record["empty_keys"] = INTEGERS.index("stream"), len(rules.dropped_if_empty)
        self._fit()
        self._declare(dialect, rules)

    @property
    def flags(self) -> npt.NDArray[np.int64]:
        """Of each pair of category and name."""
        flags: npt.NDArray[np.int64] = self._per_pair[0]
        return flags

    @property
    def device_class(self) -> npt.NDArray[np.int64]:
        """Of each pair: the number of its label where that tells a device, else -1."""
        classes: npt.NDArray[np.int64] = self._per_pair[1]
        return classes

    def grow(self) -> None:
        """Room for what found none."""
        for one in self.interners.values():
            if one.full:
                one.grow()
        for table in (self.pairs, self.places, self.lanes, self.origins):
            if len(table) >= table.capacity:
                table.grow()
        self._fit()

    def _fit(self) -> None:
        """Items for every key and pair that there is room for."""
        count = max(self.interners["tops"].capacity, self.interners["arguments"].capacity)
        self._per_key = _wider(self._per_key, count, (REST, -1, 0, 0))
        self._per_pair = _wider(self._per_pair, self.pairs.capacity, (UNKNOWN_PAIR, -1))
        self._following = _wider(self._following, CONTEXTS * (count + 1), (-1, -1))
        rows = (*self._per_key, *self._per_pair, *self._following)
        names = (
            "actions", "aux_of", "seen_tops", "seen_arguments", "flags", "device_class", "next_tops", "next_arguments",
        )  # fmt: skip
        for name, row in zip(names, rows, strict=True):
            self.record[name] = row.ctypes.data
        self.record["keys"], self.record["pairs_known"] = count, self.pairs.capacity

    def _declare(self, dialect: Dialect, rules: ScanRules) -> None:
        offset = (rules.offset_argument,) if rules.offset_argument else ()
        wanted = (*dialect.arguments, *rules.dropped, *rules.dropped_if_empty, *rules.device_arguments, *offset)
        known = list(dict.fromkeys(wanted))
        self.interners["arguments"] = Interner(self.record["arguments"], *(key.encode() for key in known))
        for number, key in enumerate(known):
            self._per_key[0, number] = _action(dialect, rules, key)
            if key in rules.device_arguments:
                self._per_key[1, number] = rules.device_arguments.index(key)


def _action(dialect: Dialect, rules: ScanRules, key: str) -> int:
    column = dialect.arguments.get(key)
    if key in rules.dropped:
        return DROPPED
    if key in rules.dropped_if_empty:
        return DROPPED_IF_EMPTY
    if key == rules.offset_argument:
        return OFFSET
    if column == "stream":
        return STREAM_OF_DEVICE
    if column in INTEGERS:
        return (NOT_NEGATIVE if key in rules.not_negative else INTEGER) + INTEGERS.index(column)
    return TEXT + TEXTS.index(column) if column in TEXTS else REST


class ScannerColumns:
    """Owns what a COLUMNS record points to."""

    def __init__(self) -> None:
        self.record = np.zeros(1, COLUMNS)[0]
        self._make(0, 0)

    @property
    def rows(self) -> int:
        """How many are in use."""
        return int(self.record["rows"])

    def make_room(self, text_bytes: int) -> None:
        """A buffer of this size fits: its arguments always, its rows as a rule. None may be in use."""
        if len(self._rest) < text_bytes:
            self._make(text_bytes, min(max(text_bytes // _ROW_BYTES, _FEWEST_ROWS), _MOST_ROWS))

    def taken(self, words: Words, buffer: npt.NDArray[np.uint8]) -> Stretch:
        """A copy of what is in use, which is free then."""
        used = ("rows", "text", "slow_rows", "recoded_rows")
        rows, text, slow, recoded = (int(self.record[name]) for name in used)
        for name in used:
            self.record[name] = 0
        if self.record["used"]:  # the row behind them, by an event that was none: the next one begins elsewhere
            self._numbers[FIRST_INTEGER:, rows : rows + 1] = NULL
            self._codes[FIRST_TEXT:, rows : rows + 1] = -1
            self.record["used"] = 0
        aside = tuple((row, start, buffer[start:end].tobytes()) for row, start, end in self._slow[:slow].tolist())
        return Stretch(
            words, rows, _copied(self._numbers[:, :rows], FIRST_INTEGER, NULL),
            _copied(self._codes[:, :rows], FIRST_TEXT, -1), self._rest[:text].copy(),
            self._rest_ends[: rows + 1].copy(), aside, dict.fromkeys(self._recoded[:recoded].tolist(), ""),
        )  # fmt: skip

    def _make(self, text_bytes: int, rows: int) -> None:
        self._numbers = np.full((FIRST_INTEGER + len(INTEGERS) + 1, rows), NULL, np.int64)
        self._codes = np.full((FIRST_TEXT + len(TEXTS), rows), -1, np.int32)
        self._rest, self._rest_ends = allocate(text_bytes, np.uint8), np.zeros(rows + 1, np.int32)
        self._slow, self._recoded = np.empty((rows, 3), np.int64), np.empty(rows, np.int64)
        for name in ("numbers", "codes", "rest", "rest_ends", "slow", "recoded"):
            self.record[name] = getattr(self, f"_{name}").ctypes.data
        self.record["capacity"] = rows
        self.record["number_rows"], self.record["code_rows"] = len(self._numbers), len(self._codes)


def _copied(columns: npt.NDArray[Any], first_optional: int, missing: int) -> tuple[npt.NDArray[Any] | None, ...]:
    """Each column on its own; None for an optional one that holds nothing. Those hold nothing then."""
    found: list[npt.NDArray[Any] | None] = []
    for number, column in enumerate(columns):
        told = number < first_optional or bool((column != missing).any())
        found.append(column.copy() if told else None)
        if told and number >= first_optional:
            column[:] = missing
    return tuple(found)


def _wider(rows: npt.NDArray[np.int64], count: int, fill: tuple[int, ...]) -> npt.NDArray[np.int64]:
    added = np.repeat(np.array(fill, np.int64)[:, None], count - rows.shape[1], axis=1)
    return np.ascontiguousarray(np.concatenate([rows, added], axis=1))


@dataclass(frozen=True, slots=True)
class Scanned:
    """What came of a buffer: ``status`` (see ``events``) and ``position`` where it stopped."""

    status: int
    position: int
    stretches: tuple[Stretch, ...]


class Scanner:
    """Scans buffers one after the other, in one thread at a time. Its numbers keep their meaning."""

    def __init__(self, dialect: Dialect) -> None:
        assert dialect.scan_rules is not None
        self.words = Words()
        self._dialect, self._rules = dialect, dialect.scan_rules
        self._classes: dict[Label, int] = {}
        self._labels: list[Label] = []
        self._memory = ScannerMemory(dialect, self._rules)
        self._columns = ScannerColumns()

    def scan(self, buffer: npt.NDArray[np.uint8], start: int, end: int) -> Scanned:
        """Read events from ``start`` (a ``{``). ``buffer`` holds at least PAD zero bytes behind ``end``."""
        memory, columns, found = self._memory, self._columns, []
        columns.make_room(len(buffer))
        at, status, named = start, events.ROWS_FULL, True
        while status in (events.ROWS_FULL, events.GROW, events.NEW_PAIR):
            status, at = events.scan(buffer.ctypes.data, at, end, memory.record, columns.record)
            if status == events.GROW:
                memory.grow()
            elif status == events.NEW_PAIR:
                named = self._label_new_pairs()
                status = status if named else events.BROKEN
            if columns.rows and status not in (events.GROW, events.NEW_PAIR):
                found.append(columns.taken(self.words, buffer))
        try:
            self._decode()
            recoded = [_recoded(stretch) for stretch in found]
        except UNDECODABLE:
            self._forget()
            return Scanned(events.BROKEN, start, ())
        if not named:
            self._forget()
        return Scanned(status, at, tuple(recoded))

    def _forget(self) -> None:
        """Start afresh, without the slice that is no JSON. What was handed out keeps the words it was made with."""
        self.__init__(self._dialect)  # type: ignore[misc]

    # -- what the compiled part does not know ----------------------------------------------------------------------

    def _label_new_pairs(self) -> bool:
        """Ask the dialect about pairs of category and name that have come up. False: one is no text."""
        memory, words = self._memory, self.words
        if not self._decode_names():
            return False
        for number, key in enumerate(memory.pairs.values(len(words.pairs)), len(words.pairs)):
            category, name = words.categories[key >> 32], words.names[key & 0xFFFFFFFF]
            label = self._dialect.label(category, name)
            words.pairs.append((category, name, label))
            slow = self._rules.needs_reference(category, name)
            memory.flags[number] = ON_DEVICE * (label.backend is not None) + SLOW_PAIR * slow
            if label.backend is not None or label.kind == schema.MEMORY:
                memory.device_class[number] = self._class(label)
        return True

    def _decode_names(self) -> bool:
        words, held = self.words, self._memory.interners
        clean = (lambda name: name) if self._rules.glued_durations else self._dialect.clean_name
        try:
            words.categories += [_string(raw) for raw in held["categories"].slices(len(words.categories))]
            words.names += [clean(_string(raw)) for raw in held["names"].slices(len(words.names))]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        return True

    def _class(self, label: Label) -> int:
        if label not in self._classes:
            self._classes[label] = len(self._labels)
            self._labels.append(label)
        return self._classes[label]

    def _decode(self) -> None:
        """Decode what is new."""
        words, held = self.words, self._memory.interners
        words.tokens += [msgspec.json.decode(raw) for raw in held["tokens"].slices(len(words.tokens))]
        words.texts += [msgspec.json.decode(raw) for raw in held["texts"].slices(len(words.texts))]
        first = len(words.places)
        for number, key in enumerate(self._memory.places.values(first), first):
            words.places.append(self._device(key) if number else CPU)
        fresh = self._memory.origins.values(len(words.origins))
        lanes = self._memory.lanes.values() if fresh else []
        words.origins += [origin_parts(key, lanes) for key in fresh]

    def _device(self, key: int) -> str:
        label, process, arguments = place_parts(key)
        given = zip(self._rules.device_arguments, arguments, strict=False)
        told = {name: self.words.tokens[token] for name, token in given if token}
        return self._dialect.device(self._labels[label], self.words.tokens[process], told)


def _recoded(stretch: Stretch) -> Stretch:
    """With the arguments that the reference writes in other words. Raises what msgspec raises."""
    if not stretch.recoded:
        return stretch
    ends, rest = stretch.rest_ends, stretch.rest
    texts: dict[int, str] = {}
    for row in stretch.recoded:
        text = rest[ends[row] : ends[row + 1]].tobytes()
        again = msgspec.json.encode(msgspec.json.decode(text))
        if again != text:  # most numbers with decimals stand there as the reference would write them
            texts[row] = again.decode()
    return replace(stretch, recoded=texts)


def _string(raw: bytes) -> str:
    return msgspec.json.decode(b'"' + raw + b'"', type=str)


def padded(data: bytes) -> npt.NDArray[np.uint8]:
    """A buffer of ``data`` that can be scanned."""
    return np.frombuffer(data + bytes(PAD), np.uint8)
