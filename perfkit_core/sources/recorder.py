"""Collects events as columns, whoever read them: one by one, or scanned."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from perfkit_core.assemble import Recorded
from perfkit_core.errors import SourceError
from perfkit_core.sources.chrome_event import DECODER, ChromeEvent, is_timed
from perfkit_core.sources.described import Descriptions
from perfkit_core.sources.dialect import Dialect, Label, integer
from perfkit_core.sources.gathering import Gathering
from perfkit_core.sources.origins import Origins
from perfkit_core.sources.portion import NULL, Portion, Stretch, Words
from perfkit_core.sources.reference_rows import RowLists
from perfkit_core.sources.row_table import RowTable
from perfkit_core.sources.rows import TEXTS, Rows
from perfkit_core.sources.scanned_rows import Meanings
from perfkit_core.sources.turns import SCAN_FROM_BYTES, can_scan
from perfkit_core.sources.vocabulary import Vocabulary
from perfkit_core.trace import IntArray

if TYPE_CHECKING:
    from perfkit_core.sources.scan.scanner import Scanner

_SPANS: Final = frozenset("X")
_INSTANTS: Final = frozenset("iIRC")
_FLOWS: Final = frozenset("stf")


class Recorder:
    """Takes events of one file or capture, in order; :meth:`recorded` returns what ``assemble`` takes.

    Also keeps what metadata events say: ``thread_names``; ``unknown`` counts events by an unsupported ``ph``,
    ``untimed`` those without a start, which are no rows, ``mistimed`` those with a start or duration that is no time,
    which are no rows either, ``reversed`` those whose duration was negative, which is 0. Without ``partial``, an event
    that is mistimed raises SourceError.
    """

    def __init__(self, dialect: Dialect, partial: bool = False) -> None:
        self.thread_names: dict[str, str] = {}
        self.unknown: dict[str, int] = {}
        self.untimed = 0
        self.mistimed = 0
        self.reversed = 0
        self._dialect, self._partial = dialect, partial
        self._labels: dict[tuple[str, str], Label] = {}
        self._origins = Origins()
        self._vocabularies = {column: Vocabulary() for column in TEXTS}
        self._descriptions = Descriptions(dialect, self._origins, self._vocabularies)
        self._meanings: dict[int, Meanings] = {}
        self._rows = Gathering()
        self._scanner: Scanner | None = None
        self._text_bytes = 0

    def add(self, events: Sequence[ChromeEvent] | Portion, times: tuple[IntArray, IntArray] | None = None) -> None:
        """Take some events, or a portion that was scanned.

        ``times``: start and duration in ns, each of shape (events,), where they are known already (live captures).
        """
        if isinstance(events, Portion):
            self._add_scanned(events)
            return
        self._gather(self._one_by_one(events, times)[0])

    def add_text(self, text: bytes, times: tuple[IntArray, IntArray]) -> None:
        """Take the body of a JSON array of events, with their start and duration in ns, each of shape (events,).

        Raises ValueError, and takes none of them, where the text is no such body or not of as many events.
        """
        self._text_bytes += len(text)
        portion = self._scanned(text, len(times[0])) if self._scans() else None
        if portion is not None:
            self._add_scanned(portion, times)
            return
        events = DECODER.decode(b"[" + text + b"]")
        if len(events) != len(times[0]):
            raise ValueError(f"{len(events)} events, but times of {len(times[0])}")
        self.add(events, times)

    def _scans(self) -> bool:
        """Loading the compiled code takes as long as the reference takes for the first few megabytes."""
        worth = self._text_bytes >= SCAN_FROM_BYTES or "perfkit_core.sources.scan.scanner" in sys.modules
        return worth and can_scan(self._dialect)

    def _scanned(self, text: bytes, count: int) -> Portion | None:
        """The events of a text; None where the scanner does not understand all of it."""
        from perfkit_core.sources.scan import ahead, events
        from perfkit_core.sources.scan.scanner import Scanner, padded

        if not text.startswith(b"{"):
            return None
        self._scanner = self._scanner or Scanner(self._dialect)
        portion, scanned = ahead.accepted(self._scanner.scan(padded(text + b"]"), 0, len(text) + 1))
        whole = scanned.status == events.CLOSED and scanned.position == len(text)
        return portion if whole and sum(part.rows for part in portion.stretches) == count else None

    def recorded(self, base_ns: int = 0, in_order: bool = True) -> Recorded:
        """The events so far, their starts shifted by ``base_ns``; they are the taker's then. In the order of the event
        table, where they were not recorded in an order that says more than their times."""
        return Recorded(self._table(base_ns, in_order).table(compact=True))

    @property
    def held(self) -> int:
        """How many events are here."""
        return self._rows.count

    def taken(self) -> pa.Table:
        """The events so far as a table of columns; they are the taker's then."""
        return self._table(0, in_order=False).table(compact=False)

    def _table(self, base_ns: int, in_order: bool) -> RowTable:
        return RowTable(self._rows.taken(), self._origins, self._vocabularies, base_ns, in_order)

    def _add_scanned(self, portion: Portion, times: tuple[IntArray, IntArray] | None = None) -> None:
        first = 0
        for stretch, events in zip(portion.stretches, portion.slow, strict=True):
            part = self._meaning(stretch.words).rows(stretch)
            if times is not None:
                here = slice(first, first + stretch.rows)
                part.integers |= {"start_ns": times[0][here], "dur_ns": times[1][here]}
            for rows in self._with_slow(part, stretch, events, times is not None) if events else [part]:
                self._gather(rows)
            first += stretch.rows

    def _gather(self, part: Rows) -> None:
        untimed = np.flatnonzero(part.integers["start_ns"] == NULL)
        self.untimed += len(untimed)
        for rows in part.without(untimed):
            self._set_right(rows)
            self._descriptions.add(rows)
            self._rows.add(rows)

    def _set_right(self, part: Rows) -> None:
        duration = part.integers["dur_ns"]
        if part.count and duration.min() < 0:
            self.reversed += int((duration < 0).sum())
            part.integers["dur_ns"] = np.maximum(duration, 0)

    def _with_slow(self, part: Rows, stretch: Stretch, events: Sequence[ChromeEvent], timed: bool) -> list[Rows]:
        """With the events that were set aside; some of them are no rows. ``timed``: their times are there already."""
        at = np.array([row for row, _, _ in stretch.slow], np.int64)
        times = (part.integers["start_ns"][at], part.integers["dur_ns"][at]) if timed else None
        found, kept = self._one_by_one(events, times)
        if len(kept):
            part.put(at[kept], found)
        return part.without(np.delete(at, kept))

    def _meaning(self, words: Words) -> Meanings:
        if id(words) not in self._meanings:  # they hold the words, so no others get their id
            self._meanings[id(words)] = Meanings(words, self._dialect, self._origins, self._vocabularies)
        return self._meanings[id(words)]

    def _one_by_one(
        self, events: Sequence[ChromeEvent], times: tuple[IntArray, IntArray] | None = None
    ) -> tuple[Rows, list[int]]:
        """The rows of events, and which of the events they are. The only Python loop over events."""
        kept = [i for i, event in enumerate(events) if self._wanted(event)]
        if times is None:
            found, kept = self._times(events, kept)
        else:
            found = times[0][kept], times[1][kept]
        lists = RowLists(self._dialect, self._labels)
        for i in kept:
            lists.take(events[i])
        return lists.rows(*found, self._origins, self._vocabularies), kept

    def _times(self, events: Sequence[ChromeEvent], kept: list[int]) -> tuple[tuple[IntArray, IntArray], list[int]]:
        """Start, NULL where there is none, and duration of the events ``kept``; and which are kept then."""
        try:
            start_ns, dur_ns = self._dialect.times([events[i] for i in kept])
        except SourceError:
            if not self._partial:
                raise
            timed = [i for i in kept if is_timed(events[i], self._dialect.times)]
            self.mistimed += len(kept) - len(timed)
            start_ns, dur_ns = self._dialect.times([events[i] for i in timed])
            kept = timed
        start_ns[[at for at, i in enumerate(kept) if not bytes(events[i].ts)]] = NULL
        return (start_ns, dur_ns), kept

    def _wanted(self, event: ChromeEvent) -> bool:
        ph = event.ph if isinstance(event.ph, str) or event.ph is None else repr(event.ph)
        if ph in _SPANS or ph in _INSTANTS:
            return self._dialect.keeps(event)
        if ph == "M":
            self._metadata(event)
        elif ph is not None and ph not in _FLOWS:  # {} ends Paddle's list; flows repeat what correlation ids say
            self.unknown[ph] = self.unknown.get(ph, 0) + 1
        return False

    def _metadata(self, event: ChromeEvent) -> None:
        pid, tid = integer(event.pid), self._dialect.thread(event.tid)
        name = event.args.get("name") if isinstance(event.args, dict) else None
        if event.name == "thread_name" and pid is not None and tid is not None and isinstance(name, str):
            self.thread_names.setdefault(f"{pid}:{tid}", name.strip())
