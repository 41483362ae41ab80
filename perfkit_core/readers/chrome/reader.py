"""Reads Chrome-trace JSON files in batches of events. The format is Google's "Trace Event Format". The top level
of a file is the list of events, or an object with the list as ``traceEvents``. Its other members are the header."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from perfkit_core.base.language.messages import Message, message, plural
from perfkit_core.base.system import machine
from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import EventWriter
from perfkit_core.readers.chrome import event_rows, repair
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect
from perfkit_core.readers.chrome.event_collector import EventCollector
from perfkit_core.readers.chrome.event_list import DECODED, MAX_VALUE_BYTES, WINDOW_BYTES, EventList
from perfkit_core.trace.model import account
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.storage.bytestream import BYTE_ORDER_MARK
from perfkit_core.trace.storage.recorded_events import ROW_GROUP

AnyDialect = TypeVar("AnyDialect", bound=Dialect)

_SPACE: Final = re.compile(rb"\s*")
_BEGINNING: Final = re.compile(rb"(?:" + BYTE_ORDER_MARK + rb")?\s*")
_MOST_DIGITS: Final = 4000
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_GAP: Final = re.compile(rb"[\s,]*")
_CLOSED: Final = re.compile(rb"[\s}]*")
_KEY: Final = re.compile(rb'"((?:[^"\\]|\\.)*+)"\s*+:')


class ChromeFile(EventList):
    """Reads a file once. ``header`` and the counters are complete when all events have been read."""

    header: dict[str, Any]
    truncated_at: int | None = None  # byte offset at which the file is cut off
    more_at: int | None = None  # byte offset at which other text follows the document

    def batches(self) -> Iterator[list[ChromeEvent]]:
        """Yield all events in file order, in lists of about 1 MB."""
        for batch in self.portions(None):
            assert isinstance(batch, list)
            yield batch

    def portions(self, dialect: Dialect | None) -> Iterator[list[ChromeEvent] | event_rows.Portion]:
        """Yield all events in file order. The scanner's events are yielded as columns, all others as lists."""
        self.header = {}
        window = self.window
        try:
            self.skip(_BEGINNING)
            opening = self.peek()
            if opening not in (b"[", b"{"):
                self.check_damage()
                if not opening:
                    hint = "the profiler may have been interrupted before writing it"
                    raise SourceError(f"{self.path}: the file is empty", hint)
                text = f"{self.path}: the file is not JSON (it starts with {opening!r})"
                raise SourceError(text, "perfkit reads Chrome-trace JSON")
            self.position += 1
            yield from self.events(dialect) if opening == b"[" else self._object(dialect)
            self._check_end()
            self.position = len(window.data)
            while window.more():
                window.drop(len(window.data))
            self.check_damage()
        except SourceError:
            if not self.partial or not self.offset:
                raise
            self.truncated_at = self.offset
        finally:
            window.close()

    def _object(self, dialect: Dialect | None) -> Iterator[list[ChromeEvent] | event_rows.Portion]:
        has_events = False
        while (key := self._key()) is not None:
            if key == "traceEvents" and self.peek() == b"[":
                has_events = True
                self.position += 1
                yield from self.events(dialect)
            else:
                self.header[key] = self._value()
        self.position += 1
        if not has_events:
            raise SourceError(
                f"{self.path}: the JSON has no traceEvents (its keys: {', '.join(list(self.header)[:5]) or 'none'})",
                "perfkit reads files that a profiler exported as a Chrome trace",
            )

    def _check_end(self) -> None:
        """Check that no text follows the document. A comma after it means that the list of events ended too early."""
        self.skip(_SPACE)
        if not self.peek():
            return
        offset = self.offset
        self.skip(_CLOSED)
        if self.peek() == b",":
            raise self.broken("the list of events ends inside an event")
        if not self.partial:
            raise SourceError(
                f"{self.path}: the document has ended, but the file continues (byte {offset})",
                "two files may have been written into one: split the file, or read the first part with --partial",
            )
        self.more_at = offset

    def _key(self) -> str | None:
        while True:
            self.skip(_GAP)
            if self.peek() == b"}":
                return None
            match = _KEY.match(self.window.data, self.position)
            if match:
                self.position = match.end()
                self.skip(_SPACE)
                key = str(json.loads(f'"{match[1].decode("utf-8", "replace")}"', strict=False))
                return key.encode("utf-8", "replace").decode()
            if len(self.window.data) - self.position > WINDOW_BYTES or not self.window.more():
                raise self.broken("the JSON object is not closed")

    def _value(self) -> Any:
        size, window = 4096, self.window
        end: int | None
        while True:
            raw = window.data[self.position : self.position + size]
            machine.require(DECODED * len(raw), f"the header of {self.path.name}")
            try:
                # In latin-1 each byte is a character, so that the end is an offset in bytes.
                _, end = json.JSONDecoder(strict=False, parse_int=str).raw_decode(raw.decode("latin-1"))
            except RecursionError:
                raise self.broken("a header value is nested too deep") from None
            except json.JSONDecodeError as error:
                end = repair.value_end(raw) if repair.UNQUOTED_WORD.match(raw, error.pos) else None
            if end is not None and end < len(raw):  # a number at the end of ``raw`` may be incomplete
                break
            if window.finished and self.position + size >= len(window.data):
                raise self.broken("the file ends inside a header value")
            if size > MAX_VALUE_BYTES:
                raise self.broken("a header value has no end")
            size *= 2
            while len(window.data) - self.position < size and window.more():
                pass
        text = raw[:end].decode("utf-8", "replace")
        try:
            try:
                if _SURROGATE.search(raw, 0, end):  # json would accept a lone one, which no output can encode
                    raise ValueError
                value = json.loads(text, strict=False, parse_int=_whole, parse_float=_number, parse_constant=str)
            except ValueError:
                mended = repair.values_mended(raw[:end])
                value = json.loads(mended, strict=False, parse_int=_whole, parse_float=_number)
        except (ValueError, RecursionError):
            raise self.broken("a header value is not valid JSON") from None
        self.position += end
        return value


def _whole(text: str) -> int | str:
    """Return an integer, or the text of one that Python does not convert because of its many digits."""
    return int(text) if len(text) <= _MOST_DIGITS else text


def _number(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


class Reading(Generic[AnyDialect]):
    """One pass over a file, which collects its events in ``collector``. The header is complete at the end."""

    def __init__(self, path: Path, dialect: AnyDialect, partial: bool, sparing: bool = False) -> None:
        self.file = ChromeFile(path, partial, sparing)
        self.collector = EventCollector(dialect, partial)
        self.dialect = dialect

    def read(self) -> None:
        """Read the file into the collector. Raises SourceError."""
        for portion in self.file.portions(self.dialect):
            machine.require(0, f"the events of {self.file.path.name}")
            self.collector.add(portion)

    def stream(self, writer: EventWriter) -> None:
        """Read the file into the writer, one row group at a time. Raises SourceError."""
        for portion in self.file.portions(self.dialect):
            self.collector.add(portion)
            if self.collector.row_count >= ROW_GROUP:
                self._write(writer)
        if self.collector.row_count:
            self._write(writer)

    def _write(self, writer: EventWriter) -> None:
        events = self.collector.drain()
        self.see(events)
        for batch in events.to_batches():
            writer.write(batch)

    def see(self, events: pa.Table) -> None:
        """Called with each row group before it is written. Override this method to collect values from all events."""


def file_findings(file: ChromeFile, collector: EventCollector) -> tuple[Finding, ...]:
    findings = []
    if file.truncated_at is not None:
        findings.append(Finding("truncated", cut_off(file.truncated_at)))
    findings += strays(file)
    if file.repaired:
        text = plural(
            "1 event was not valid JSON and has been repaired",
            "{n} events were not valid JSON and have been repaired",
            file.repaired,
        )
        findings.append(Finding("repaired-events", text))
    if file.skipped:
        findings.append(Finding("skipped-events", skipped(file.skipped)))
    return (*findings, *event_findings(collector))


def event_findings(collector: EventCollector) -> tuple[Finding, ...]:
    findings = []
    if collector.untimed:
        findings.append(without_start(collector.untimed, collector.count))
    if collector.mistimed:
        findings.append(mistimed(collector.mistimed))
    if collector.reversed:
        findings.append(negative_durations(collector.reversed))
    if collector.unknown:
        types = ", ".join(f"{count} of type {ph!r}" for ph, count in sorted(collector.unknown.items()))
        text = message("events whose type has no duration were not read: {types}", types=types)
        findings.append(Finding("unread-events", text))
    return tuple(findings)


def file_account(file: ChromeFile, collector: EventCollector) -> tuple[ReadEvents, ...]:
    """Return what became of the events that did not become rows."""
    counts = {
        account.METADATA: collector.metadata, account.LINK: collector.links,
        "about_recording": collector.about_recording, "empty": collector.blanks,
        "without_start": collector.untimed, "start_not_a_time": collector.mistimed, "not_json": file.skipped,
    }  # fmt: skip
    entries = [ReadEvents(became, count) for became, count in counts.items()]
    entries += [ReadEvents("type_without_duration", count, ph) for ph, count in sorted(collector.unknown.items())]
    return tuple(entry for entry in entries if entry.count)


def cut_off(at: int) -> Message:
    return message("the file is cut off at byte {at}: everything after it is missing", at=at)


def strays(file: ChromeFile) -> list[Finding]:
    findings = []
    if file.more_at is not None:
        text = message("the document ends at byte {at}, but the file continues; the rest was not read", at=file.more_at)
        findings.append(Finding("more-behind", text))
    if file.strays:
        text = message("text that is not an event was ignored in {count} places between events", count=file.strays)
        findings.append(Finding("stray-text", text))
    return findings


def without_start(count: int, events: int) -> Finding:
    text = message("{count} of {events} events were left out because they have no time", count=count, events=events)
    return Finding("events-without-start", text)


def mistimed(count: int) -> Finding:
    text = message("{count} events were left out because their start or duration is not a time", count=count)
    return Finding("events-without-start", text)


def negative_durations(count: int) -> Finding:
    text = message("{count} events ended before they began: their duration is taken as 0", count=count)
    return Finding("negative-durations", text)


def skipped(count: int) -> Message:
    return message("{count} events were not valid JSON, or nested too deep, and are missing", count=count)
