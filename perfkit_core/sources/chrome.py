"""Chrome-trace JSON: the events in batches, and everything else of the file as its header.

The file is never held whole. A window of about 1 MB is cut behind an event and decoded by msgspec in one call. The cut
is right because it is proven: ``[`` + bytes + ``]`` is valid JSON only if the bytes end between two events.

Format: Google's "Trace Event Format"; the top level is an object with ``traceEvents`` or the list of events itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfkit_core.errors import SourceError
from perfkit_core.sources import repair
from perfkit_core.sources.bytestream import CHUNK_BYTES, Window
from perfkit_core.sources.chrome_event import DECODER, UNDECODABLE, ChromeEvent
from perfkit_core.sources.dialect import Dialect
from perfkit_core.sources.portion import Portion
from perfkit_core.sources.turns import Turns, can_scan

MAX_VALUE_BYTES = 64 << 20
"""Largest single event or header value that is read; a larger one is taken for a damaged file."""

_CUTS_TRIED = 8
_SPACE = re.compile(rb"\s*")
_GAP = re.compile(rb"[\s,]*")
_AFTER_EVENT = re.compile(rb"\s*(?:,\s*\{|\]|,\s*\])")
_KEY = re.compile(rb'\s*,?\s*"((?:[^"\\]|\\.)*)"\s*:\s*')


class ChromeFile:
    """One pass over a file: iterate :meth:`batches`, then read ``header`` and the counters.

    ``repaired`` and ``skipped`` count events whose text was not valid JSON; ``truncated_at`` is the byte at which
    the file broke off. Without ``partial``, what cannot be repaired raises SourceError.
    """

    def __init__(self, path: Path, partial: bool = False) -> None:
        self.path = path
        self.partial = partial
        self.header: dict[str, Any] = {}
        self.repaired = 0
        self.skipped = 0
        self.truncated_at: int | None = None
        self._window = Window(path)
        self._pos = 0
        self._dialect: Dialect | None = None

    def batches(self) -> Iterator[list[ChromeEvent]]:
        """All events in file order, a list for about each megabyte."""
        for batch in self.portions(None):
            assert isinstance(batch, list)
            yield batch

    def portions(self, dialect: Dialect | None) -> Iterator[list[ChromeEvent] | Portion]:
        """All events in file order, where the dialect's rules and the text allow it as scanned columns."""
        self._dialect = dialect if dialect is not None and can_scan(dialect) else None
        try:
            yield from self._top_level()
            self._pos = len(self._window.data)
            while self._window.more():
                self._window.drop(len(self._window.data))
            self._whole()
        except SourceError:
            if not self.partial or not (self._window.base or self._pos):
                raise
            self._note_truncation()
        finally:
            self._window.close()

    # -- top level -------------------------------------------------------------------------------------------------

    def _top_level(self) -> Iterator[list[ChromeEvent] | Portion]:
        self._skip(re.compile(rb"(?:\xef\xbb\xbf)?\s*"))
        opening = self._peek()
        if opening == b"[":
            self._pos += 1
            yield from self._events()
        elif opening == b"{":
            self._pos += 1
            yield from self._object()
        elif not opening:
            self._whole()
            raise SourceError(f"{self.path}: the file is empty", "was the profiler stopped before it was read?")
        else:
            self._whole()
            raise SourceError(f"{self.path}: not JSON (starts with {opening!r})", "perfkit reads Chrome-trace JSON")

    def _object(self) -> Iterator[list[ChromeEvent] | Portion]:
        found = False
        while True:
            key = self._key()
            if key is None:
                break
            if key == "traceEvents" and self._peek() == b"[":
                found = True
                self._pos += 1
                yield from self._events()
            else:
                self.header[key] = self._value()
        if not found:
            raise SourceError(
                f"{self.path}: a JSON file without traceEvents (keys: {', '.join(list(self.header)[:5]) or 'none'})",
                "perfkit reads what a profiler exported as a Chrome trace",
            )

    def _key(self) -> str | None:
        """The next key of the top-level object, None at its end."""
        while True:
            match = _KEY.match(self._window.data, self._pos)
            if match:
                self._pos = match.end()
                self._skip(_SPACE)
                return str(json.loads(f'"{match[1].decode("utf-8", "replace")}"', strict=False))
            self._skip(_GAP)
            if self._peek() == b"}":
                return None
            if len(self._window.data) - self._pos > CHUNK_BYTES or not self._window.more():
                raise self._broken("the JSON object is not closed")

    def _value(self) -> Any:
        """The next JSON value, whole."""
        size = 4096
        while True:
            text = self._window.data[self._pos : self._pos + size].decode("latin-1")  # one char a byte: offsets stay
            try:
                _, end = json.JSONDecoder(strict=False).raw_decode(text)
                complete = end < len(text)  # a number that ends with the text may go on behind it
            except ValueError:
                complete = False
            if complete or (self._window.finished and self._pos + size >= len(self._window.data)):
                break
            if size > MAX_VALUE_BYTES:
                raise self._broken("a header value does not end")
            size *= 2
            while len(self._window.data) - self._pos < size and self._window.more():
                pass
        if not complete:
            raise self._broken("the file ends inside a header value")
        raw = text[:end].encode("latin-1").decode("utf-8", "replace")
        self._pos += end
        return json.loads(raw, strict=False)

    # -- the array of events ---------------------------------------------------------------------------------------

    def _events(self) -> Iterator[list[ChromeEvent] | Portion]:
        turns = Turns(self._window) if self._dialect else None
        while True:
            self._window.drop(self._pos)
            self._pos = 0
            while len(self._window.data) < CHUNK_BYTES and self._window.more():
                pass
            self._skip(_GAP)
            opening = self._peek()
            if opening == b"]":
                self._pos += 1
                return
            if opening != b"{":
                raise self._broken("the list of events is not closed" if not opening else "not an event")
            if turns and self._dialect and turns.scan_next():
                self._window.drop(self._pos)
                self._pos = 0
                yield from turns.portions(self._dialect)
            else:
                yield self._batch() or self._salvage()

    def _batch(self) -> list[ChromeEvent] | None:
        """The events up to the last provable cut in the window; None when there is none among the likely places."""
        data, cut = self._window.data, min(len(self._window.data), self._pos + CHUNK_BYTES)
        for _ in range(_CUTS_TRIED):
            cut = data.rfind(b"}", self._pos, cut)
            while cut >= 0 and not _AFTER_EVENT.match(data, cut + 1):
                cut = data.rfind(b"}", self._pos, cut)
            if cut < 0:
                return None
            try:
                batch = DECODER.decode(b"[" + data[self._pos : cut + 1] + b"]")
            except UNDECODABLE:
                continue
            self._pos = cut + 1
            return batch
        return None

    def _salvage(self) -> list[ChromeEvent]:
        """One event at a time, over the part of the window that is not valid JSON."""
        found = repair.next_event(self._window.data, self._pos)
        while found is None and (held := len(self._window.data) - self._pos) < MAX_VALUE_BYTES:
            if not self._window.more(max(held, CHUNK_BYTES)):  # doubled: a long event is not looked at too often
                break
            found = repair.next_event(self._window.data, self._pos)
        if found is None:
            raise self._broken("an event is not valid JSON or does not end")
        batch: list[ChromeEvent] = []
        while found is not None and len(batch) < 4096:
            text, end, was_repaired = found
            try:
                batch += DECODER.decode(b"[" + text + b"]")
                self.repaired += was_repaired
            except UNDECODABLE:
                if not self.partial:
                    raise self._broken("an event is not valid JSON") from None
                self.skipped += 1
            self._pos = end
            gap = _GAP.match(self._window.data, self._pos)
            self._pos = gap.end() if gap else self._pos
            found = repair.next_event(self._window.data, self._pos)
        return batch

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        while True:
            match = pattern.match(self._window.data, self._pos)
            if match:
                self._pos = match.end()
            if self._pos < len(self._window.data) or not self._window.more():
                return

    def _peek(self) -> bytes:
        return self._window.data[self._pos : self._pos + 1]

    def _broken(self, what: str) -> SourceError:
        self._whole()
        where = self._window.base + self._pos
        return SourceError(
            f"{self.path}: {what} (byte {where})",
            "the file is truncated or damaged: record it again, or read what is there with --partial",
        )

    def _whole(self) -> None:
        """Raise SourceError where compressed data is damaged: whatever else is missing, that is why."""
        if self._window.damage:
            hint = "copy or record the file again, or read what is there with --partial"
            raise SourceError(f"{self.path}: {self._window.damage}", hint)

    def _note_truncation(self) -> None:
        self.truncated_at = self._window.base + self._pos
