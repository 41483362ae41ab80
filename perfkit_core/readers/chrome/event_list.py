"""Reading of the list of events of a Chrome trace in batches, by the scanner or the reference reader.

The scanner is compiled code for the usual events. The reference reader is slower, but can read all events. It cuts off
about 1 MB of text at a place where an event seems to end, and decodes this text with msgspec. A wrong cut is always
detected: ``[`` + text + ``]`` is valid JSON only if the text ends between two events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfkit_core.base.system import machine
from perfkit_core.errors import SourceError
from perfkit_core.readers.chrome import repair
from perfkit_core.readers.chrome.dialect import DECODER, SCAN_FROM_BYTES, UNDECODABLE, ChromeEvent, Dialect
from perfkit_core.readers.chrome.event_rows import Portion
from perfkit_core.trace.storage.bytestream import CHUNK_BYTES, Window

if TYPE_CHECKING:
    from perfkit_core.readers.scanner.chunks import ScanAhead


WINDOW_BYTES = CHUNK_BYTES
MAX_VALUE_BYTES: Final = 64 << 20
"""Maximum size of an event or a header value. Anything larger is treated as damage."""
_CUTS_TRIED: Final = 8
DECODED: Final = 20
"""Largest size of a decoded value, as a multiple of its text: an empty list in a list takes 3 and 64 bytes."""
_COPIES: Final = 3
"""Number of copies of an event that the repair makes."""
_GAP: Final = re.compile(rb"[\s,]*")
_AFTER_EVENT: Final = re.compile(rb"\s*+(?:,\s*+[\{\]]|\])|(?:\s*+,)?\s{4096,}+\Z")
"""Matches what follows an event. Of long blanks, the rest may not have been read yet."""


class EventList:
    """Reader of the lists of events in a file.

    - ``repaired``: number of events that were not valid JSON and have been repaired
    - ``skipped``: number of events that could not be repaired, or are nested too deep
    - ``strays``: number of places where other text lies between events
    - ``position``: index of the next byte in ``window.data``

    Damage that cannot be repaired raises SourceError, unless ``partial`` is set. With ``sparing``, less memory is used.
    """

    def __init__(self, path: Path, partial: bool = False, sparing: bool = False) -> None:
        self.path, self.partial = path, partial
        self.repaired = self.skipped = self.strays = 0
        self.window = Window(path, sparing)
        self.position = 0

    def events(self, dialect: Dialect | None) -> Iterator[list[ChromeEvent] | Portion]:
        """Yield the events of the list that is open at the position, and move the position past the list."""
        turns = Turns(self.window, dialect) if dialect is not None and dialect.scan_rules else None
        while True:
            self.drop()
            while len(self.window.data) < WINDOW_BYTES and self.window.more():
                pass
            self.skip(_GAP)
            opening = self.peek()
            if opening == b"]":
                self.position += 1
                return
            if opening != b"{":
                if not opening:
                    raise self.broken("the list of events is not closed")
                self._resume()
            elif turns and turns.scan_next():
                self.drop()
                yield from turns.portions()
            else:
                yield self._batch() or self._salvage()

    @property
    def offset(self) -> int:
        return self.window.base + self.position

    def skip(self, pattern: re.Pattern[bytes]) -> None:
        """Move the position past a match of the pattern. More of the file is read if the match may continue. Text that
        was skipped leaves the window, so that the time is linear."""
        while True:
            match = pattern.match(self.window.data, self.position)
            if match:
                self.position = match.end()
            if self.position < len(self.window.data):
                return
            self.drop()
            if not self.window.more():
                return

    def peek(self) -> bytes:
        """Return the next byte, or ``b""`` at the end of the file."""
        return self.window.data[self.position : self.position + 1]

    def drop(self) -> None:
        self.window.drop(self.position)
        self.position = 0

    def broken(self, problem: str) -> SourceError:
        self.check_damage()
        return SourceError(
            f"{self.path}: {problem} (byte {self.offset})",
            "the file is truncated or damaged: record it again, or read the intact part with --partial",
        )

    def check_damage(self) -> None:
        """Raise SourceError if the compressed data is damaged. Other errors may then be consequences of this damage."""
        if self.window.damage:
            hint = "copy or record the file again, or read the intact part with --partial"
            raise SourceError(f"{self.path}: {self.window.damage}", hint)

    def _resume(self) -> None:
        window = self.window
        while self.partial:
            unread = len(window.data) - self.position
            last = window.finished or unread >= MAX_VALUE_BYTES
            beginning = repair.next_beginning(window.data, self.position, last)
            if beginning is not None:
                self.position = beginning
                self.strays += 1
                return
            if last:
                break
            window.more(max(unread, WINDOW_BYTES))  # doubles the window, so that the total time is linear
        raise self.broken("the text here is not an event")

    def _batch(self) -> list[ChromeEvent] | None:
        """Decode the complete events in the buffer with one call, and return them. Return None if this fails."""
        data, cut = self.window.data, min(len(self.window.data), self.position + WINDOW_BYTES)
        for _ in range(_CUTS_TRIED):
            cut = data.rfind(b"}", self.position, cut)
            while cut >= 0 and not _AFTER_EVENT.match(data, cut + 1):
                cut = data.rfind(b"}", self.position, cut)
            if cut < 0:
                return None
            machine.require(DECODED * (cut - self.position), f"events of {self.path.name}")
            try:
                batch = DECODER.decode(b"[" + data[self.position : cut + 1] + b"]")
            except UNDECODABLE:
                continue
            self.position = cut + 1
            return batch
        return None

    def _salvage(self) -> list[ChromeEvent]:
        """Return the next events, decoded one at a time. An event that is not valid JSON is repaired if possible."""
        event = self._next_event()
        while event is None and not self.window.finished:
            unread = len(self.window.data) - self.position
            if unread >= MAX_VALUE_BYTES:
                break
            self.window.more(max(unread, WINDOW_BYTES))  # doubles the window, so that the total time is linear
            event = self._next_event()
        if event is None:
            raise self.broken("an event is not valid JSON or has no end")
        batch: list[ChromeEvent] = []
        while event is not None and len(batch) < 4096:
            text, end, was_repaired = event
            machine.require(DECODED * len(text), f"an event of {self.path.name}")
            try:
                batch += DECODER.decode(b"[" + text + b"]")
                self.repaired += was_repaired
            except UNDECODABLE as error:
                if not self.partial:
                    deep = isinstance(error, RecursionError)
                    raise self.broken(f"an event is {'nested too deep' if deep else 'not valid JSON'}") from None
                self.skipped += 1
            self.position = end
            gap = _GAP.match(self.window.data, self.position)
            self.position = gap.end() if gap else self.position
            event = self._next_event()
        return batch

    def _next_event(self) -> tuple[bytes, int, bool] | None:
        machine.require(_COPIES * min(len(self.window.data), MAX_VALUE_BYTES), f"an event of {self.path.name}")
        return repair.next_event(self.window.data, self.position, self.window.finished)


_LONG_SCAN_BYTES: Final = 16 << 20
_MAX_BATCHES: Final = 64


class Turns:
    """Decides which reader reads next: the scanner, or the slower reference reader. After a long scan, the reference
    reader reads one batch. After a short scan, it reads twice as many batches as last time, up to _MAX_BATCHES."""

    def __init__(self, window: Window, dialect: Dialect) -> None:
        self._window, self._dialect = window, dialect
        self._batches, self._next_batches = 0, 1
        self._ahead: ScanAhead | None = None

    def scan_next(self) -> bool:
        if self._ahead is None:
            while (missing := SCAN_FROM_BYTES - len(self._window.data)) > 0 and self._window.more(missing):
                pass
            return missing <= 0
        self._batches -= 1
        return self._batches < 0

    def portions(self) -> Iterator[Portion]:
        """Yield the events that the scanner reads, starting where the window begins."""
        from perfkit_core.readers.scanner.chunks import ScanAhead

        self._ahead = self._ahead or ScanAhead(self._dialect)
        begin = self._window.base
        yield from self._ahead.portions(self._window)
        long = self._window.base - begin >= _LONG_SCAN_BYTES
        self._batches = self._next_batches = 1 if long else min(2 * self._next_batches, _MAX_BATCHES)
