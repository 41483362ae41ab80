"""One scanner: buffers in, stretches of columns out, with the dialect asked once for each distinct thing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt

from perfkit_core import schema
from perfkit_core.schema import CPU
from perfkit_core.sources.chrome_event import UNDECODABLE
from perfkit_core.sources.dialect import Dialect, Label
from perfkit_core.sources.portion import Stretch, Words
from perfkit_core.sources.scan import events
from perfkit_core.sources.scan.origins import origin_parts
from perfkit_core.sources.scan.places import place_parts
from perfkit_core.sources.scan.room import ScannerColumns, ScannerMemory
from perfkit_core.sources.scan.state import (
    ON_DEVICE,
    SLOW_PAIR,
)
from perfkit_core.sources.scan.words import PAD


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
