"""Collects events as columns, whoever read them: one by one, or scanned.

Describes the collectives among recorded events as they come, while their texts are at hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.assembly.draft import Recorded
from perfkit_core.assembly.labels import with_description
from perfkit_core.errors import SourceError
from perfkit_core.readers.chrome.dialect import (
    DECODER,
    SCAN_FROM_BYTES,
    ChromeEvent,
    Dialect,
    Label,
    can_scan,
    integer,
    is_timed,
)
from perfkit_core.readers.chrome.reference_rows import RowLists
from perfkit_core.readers.chrome.row_table import Gathering, RowTable
from perfkit_core.readers.chrome.rows import NULL, TEXTS, Numbers, Origins, Rows, Vocabulary
from perfkit_core.readers.chrome.scanned_rows import Meanings, Portion, Stretch, Words

if TYPE_CHECKING:
    from perfkit_core.readers.scanner.scanner import Scanner

_REMEMBERED: Final = 1 << 8
_TEXTS: Final = ("shapes", "dtypes")


class Descriptions:
    """Adds to ``args`` what an event communicates (:mod:`perfkit_core.assembly.labels`), and its bytes."""

    def __init__(self, dialect: Dialect, origins: Origins, vocabularies: Mapping[str, Vocabulary]) -> None:
        self._dialect, self._origins, self._vocabularies = dialect, origins, vocabularies
        self._wanted = Numbers(np.bool_)
        self._seen: dict[tuple[str | None, ...], tuple[str | None, int]] = {}

    def add(self, part: Rows) -> None:
        """Describe what is there to describe among these rows. What was recorded stays."""
        for origin in self._origins.known(len(self._wanted)):
            self._wanted.append(self._dialect.communicates(origin.name or "", origin.kind or ""))
        at = np.flatnonzero(self._wanted.array()[part.origin])
        if not len(at):
            return
        texts = (self._texts(part, column, at) for column in _TEXTS)
        names = (self._origins.name(number) for number in part.origin[at].tolist())
        found = [self._of(*key) for key in zip(names, part.arguments(at), *texts, strict=True)]
        part.replace(at, [text for text, _ in found])
        self._measure(part, at, np.array([size for _, size in found], np.int64))

    def _texts(self, part: Rows, column: str, at: npt.NDArray[np.int64]) -> list[str | None]:
        codes = part.texts.get(column)
        if codes is None:
            return [None] * len(at)
        known = self._vocabularies[column].texts()
        found: list[str | None] = known.take(pa.array(codes[at], mask=codes[at] < 0)).to_pylist()
        return found

    def _of(self, *key: Any) -> tuple[str | None, int]:
        """The ``args`` of a row that is described, and its size, -1 where that is unknown."""
        if key not in self._seen:
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            collective, size = self._dialect.described(*key)
            self._seen[key] = with_description(key[1], collective), size
        return self._seen[key]

    def _measure(self, part: Rows, at: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
        if (sizes < 0).all():
            return
        column = part.integers.setdefault("bytes", np.full(part.count, NULL, np.int64))
        unknown = (column[at] == NULL) & (sizes >= 0)
        column[at[unknown]] = sizes[unknown]


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
        worth = self._text_bytes >= SCAN_FROM_BYTES or "perfkit_core.readers.scanner.scanner" in sys.modules
        return worth and can_scan(self._dialect)

    def _scanned(self, text: bytes, count: int) -> Portion | None:
        """The events of a text; None where the scanner does not understand all of it."""
        from perfkit_core.readers.scanner import chunks, events
        from perfkit_core.readers.scanner.scanner import Scanner, padded

        if not text.startswith(b"{"):
            return None
        self._scanner = self._scanner or Scanner(self._dialect)
        portion, scanned = chunks.accepted(self._scanner.scan(padded(text + b"]"), 0, len(text) + 1))
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
