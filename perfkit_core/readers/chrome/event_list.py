"""The list of events of a Chrome trace, read in batches by the scanner or by the reference. The reference cuts about 1
MB after an event and decodes it with msgspec in one call. The cut is proven: ``[`` + bytes + ``]`` is valid JSON only
if the bytes end between two events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfkit_core.errors import SourceError
from perfkit_core.readers.chrome import repair
from perfkit_core.readers.chrome.dialect import DECODER, SCAN_FROM_BYTES, UNDECODABLE, ChromeEvent, Dialect
from perfkit_core.readers.chrome.scanned_rows import Portion
from perfkit_core.storage.bytestream import CHUNK_BYTES, Window

if TYPE_CHECKING:
    from perfkit_core.readers.scanner.chunks import ScanAhead


WINDOW_BYTES = CHUNK_BYTES
MAX_VALUE_BYTES: Final = 64 << 20
"""Largest event or header value that is read; a larger one counts as damage."""
_CUTS_TRIED: Final = 8
_GAP: Final = re.compile(rb"[\s,]*")
_AFTER_EVENT: Final = re.compile(rb"\s*(?:,\s*\{|\]|,\s*\])")


class EventList:
    """Reader of the lists of events in a file. ``repaired`` and ``skipped`` count events that were not valid JSON or
    nested too deep, ``strays`` places with other text between events. Without ``partial``, damage that cannot be
    repaired raises SourceError. ``sparing``: use little memory. ``position``, of the next byte, indexes
    ``window.data``."""

    def __init__(self, path: Path, partial: bool = False, sparing: bool = False) -> None:
        self.path, self.partial = path, partial
        self.repaired = self.skipped = self.strays = 0
        self.window = Window(path, sparing)
        self.position = 0

    def events(self, dialect: Dialect | None) -> Iterator[list[ChromeEvent] | Portion]:
        """Yield the events of a list after its opening bracket, and leave the position after the list."""
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
        """Move past a match of the pattern, reading on as needed."""
        while True:
            match = pattern.match(self.window.data, self.position)
            if match:
                self.position = match.end()
            if self.position < len(self.window.data) or not self.window.more():
                return

    def peek(self) -> bytes:
        """Return the next byte, none at the end."""
        return self.window.data[self.position : self.position + 1]

    def drop(self) -> None:
        self.window.drop(self.position)
        self.position = 0

    def broken(self, what: str) -> SourceError:
        self.check_damage()
        return SourceError(
            f"{self.path}: {what} (byte {self.offset})",
            "the file is truncated or damaged: record it again, or read the intact part with --partial",
        )

    def check_damage(self) -> None:
        """Raise SourceError if compressed data is damaged, which explains why the rest is missing."""
        if self.window.damage:
            hint = "copy or record the file again, or read the intact part with --partial"
            raise SourceError(f"{self.path}: {self.window.damage}", hint)

    def _resume(self) -> None:
        """Move to the next event or the end of the list."""
        window = self.window
        while self.partial:
            held = len(window.data) - self.position
            last = window.finished or held >= MAX_VALUE_BYTES
            beginning = repair.next_beginning(window.data, self.position, last)
            if beginning is not None:
                self.position = beginning
                self.strays += 1
                return
            if last:
                break
            window.more(max(held, WINDOW_BYTES))  # doubled, so that the search takes linear time
        raise self.broken("not an event")

    def _batch(self) -> list[ChromeEvent] | None:
        """Return the events up to the last provable cut in the window, None without one."""
        data, cut = self.window.data, min(len(self.window.data), self.position + WINDOW_BYTES)
        for _ in range(_CUTS_TRIED):
            cut = data.rfind(b"}", self.position, cut)
            while cut >= 0 and not _AFTER_EVENT.match(data, cut + 1):
                cut = data.rfind(b"}", self.position, cut)
            if cut < 0:
                return None
            try:
                batch = DECODER.decode(b"[" + data[self.position : cut + 1] + b"]")
            except UNDECODABLE:
                continue
            self.position = cut + 1
            return batch
        return None

    def _salvage(self) -> list[ChromeEvent]:
        """Return events decoded one at a time, over the part of the window that is not valid JSON."""
        event = self._next_event()
        while event is None and not self.window.finished:
            held = len(self.window.data) - self.position
            if held >= MAX_VALUE_BYTES:
                break
            self.window.more(max(held, WINDOW_BYTES))  # doubled, so that the search takes linear time
            event = self._next_event()
        if event is None:
            raise self.broken("an event is not valid JSON or does not end")
        batch: list[ChromeEvent] = []
        while event is not None and len(batch) < 4096:
            text, end, was_repaired = event
            try:
                batch += DECODER.decode(b"[" + text + b"]")
                self.repaired += was_repaired
            except UNDECODABLE as error:
                if not self.partial:
                    deep = isinstance(error, RecursionError)
                    what = "an event is nested too deep" if deep else "an event is not valid JSON"
                    raise self.broken(what) from None
                self.skipped += 1
            self.position = end
            gap = _GAP.match(self.window.data, self.position)
            self.position = gap.end() if gap else self.position
            event = self._next_event()
        return batch

    def _next_event(self) -> tuple[bytes, int, bool] | None:
        window = self.window
        return repair.next_event(window.data, self.position, window.finished)


_LOADED_FROM_BYTES: Final = 1 << 16
"""The reference always reads smaller files."""
_WORTH_BYTES: Final = 16 << 20
_MOST_BATCHES: Final = 64


class Turns:
    """Alternation between scanner and reference. After the scanner stops, the reference reads a batch, and twice as
    many batches each time the scanner stops soon again."""

    small_bytes = 0
    """Bytes that this process has read from files too small to load the compiled code."""

    def __init__(self, window: Window, dialect: Dialect) -> None:
        self._window, self._dialect = window, dialect
        self._enough = min(max(SCAN_FROM_BYTES - Turns.small_bytes, _LOADED_FROM_BYTES), SCAN_FROM_BYTES)
        self._batches, self._patience = 0, 1
        self._ahead: ScanAhead | None = None

    def scan_next(self) -> bool:
        """Return whether the scanner continues from here."""
        if self._ahead is None:
            while (missing := self._enough - len(self._window.data)) > 0 and self._window.more(missing):
                pass
            if missing > 0:
                Turns.small_bytes += len(self._window.data)
            return missing <= 0
        self._batches -= 1
        return self._batches < 0

    def portions(self) -> Iterator[Portion]:
        """Yield what the scanner reads from the beginning of the window."""
        from perfkit_core.readers.scanner.chunks import ScanAhead

        self._ahead = self._ahead or ScanAhead(self._dialect)
        begin = self._window.base
        yield from self._ahead.portions(self._window)
        far = self._window.base - begin >= _WORTH_BYTES
        self._patience = 1 if far else min(2 * self._patience, _MOST_BATCHES)
        self._batches = self._patience
