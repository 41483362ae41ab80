"""Collection of recorded events as columns. The events come one by one from the reference reader, as portions from the
scanner, or as text from live captures.

Names and arguments of events may describe collectives and the steps of inference servers. The dialect of the framework
understands them; the facts go into side tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core.base.algorithms.arrays import Codes, IntArray, picked, to_codes
from perfkit_core.readers.chrome import event_rows, row_table
from perfkit_core.readers.chrome.dialect import (
    DECODER,
    ChromeEvent,
    Dialect,
    Label,
    timed_events,
)
from perfkit_core.readers.chrome.event_rows import Portion, Skipped, Translation
from perfkit_core.readers.chrome.process_ids import ProcessIds
from perfkit_core.readers.chrome.rows import ARGUMENT_TEXTS, NULL, Origins, Rows, Vocabulary
from perfkit_core.readers.chrome.unlabelled import LinkEnds
from perfkit_core.trace.assembly import draft
from perfkit_core.trace.assembly.draft import RecordedEvents
from perfkit_core.trace.assembly.labels import with_sizes
from perfkit_core.trace.model import collective, schema, serving_step
from perfkit_core.trace.model.collective import Collective
from perfkit_core.trace.model.serving_step import ServingStep

if TYPE_CHECKING:
    from perfkit_core.readers.chrome.dialect import Dialect
    from perfkit_core.readers.scanner.scanner import Scanner

_MAX_CACHED: Final = 1 << 12


def described(recorded: RecordedEvents, dialect: Dialect) -> RecordedEvents:
    """Return the events with side tables of the collectives and server steps that they describe. The column ``bytes``
    gets the size of a message if none was recorded."""
    columns = recorded.columns
    if not columns.num_rows:
        return recorded
    names, kinds = (Codes(*to_codes(columns[name].chunks, columns.num_rows)) for name in ("name", "kind"))
    recorded = _with_server_steps(recorded, dialect, names, kinds)
    rows = _communicating(dialect, names, kinds)
    return _with_collectives(recorded, dialect, rows) if len(rows) else recorded


def _with_server_steps(recorded: RecordedEvents, dialect: Dialect, names: Codes, kinds: Codes) -> RecordedEvents:
    # the framework numbers its own steps
    columns = recorded.columns
    unnumbered = columns["step"].is_null() if "step" in columns.column_names else pa.array([True] * len(columns))
    ranges = np.flatnonzero(kinds.rows(schema.STEP) & np.asarray(unnumbered))
    of_name: dict[int, ServingStep | None] = {}
    rows, steps = [], []
    for row, code in zip(ranges.tolist(), names.codes[ranges].tolist(), strict=True):
        if code not in of_name:
            of_name[code] = dialect.serving_step(names.values[code] if code >= 0 else "")
        step = of_name[code]
        if step is not None and step.plausible:
            rows.append(row)
            steps.append(step)
    table = serving_step.TABLE
    return recorded.with_facts(table, table.of_structs(steps, row=rows)) if steps else recorded


def _communicating(dialect: Dialect, names: Codes, kinds: Codes) -> IntArray:
    """Return the rows whose name and kind may be those of a collective."""
    width = len(kinds.values) + 1  # the last kind is null
    pair = names.codes.astype(np.int64) * width + np.where(kinds.codes < 0, width - 1, kinds.codes)
    occurs = np.zeros((len(names.values) + 1) * width, np.bool_)
    occurs[pair] = True  # a missing name counts from the end
    for at in np.flatnonzero(occurs).tolist():
        name, kind = divmod(at, width)
        texts = [values[number] if number < len(values) else ""
                 for values, number in ((names.values, name), (kinds.values, kind))]  # fmt: skip
        occurs[at] = dialect.communicates(*texts)
    return np.flatnonzero(occurs[pair])


def _with_collectives(recorded: RecordedEvents, dialect: Dialect, rows: IntArray) -> RecordedEvents:
    columns = recorded.columns
    cells = [
        picked(columns[name], rows).to_pylist() if name in columns.column_names else [None] * len(rows)
        for name in ("name", "args", "shapes", "dtypes")
    ]
    descriptions: dict[tuple[str | None, ...], tuple[Collective | None, int]] = {}
    sizes, described_rows, collectives = np.full(len(rows), -1, np.int64), [], []
    for at, (name, *arguments) in enumerate(zip(*cells, strict=True)):
        key = (name, *arguments)
        if key not in descriptions:
            if len(descriptions) >= _MAX_CACHED:
                descriptions.clear()
            fact, size = dialect.described(name or "", *arguments)
            descriptions[key] = None if fact is None else _fitting(fact), size if size < 2**63 else -1
        fact, sizes[at] = descriptions[key]
        if fact is not None:
            described_rows.append(int(rows[at]))
            collectives.append(fact)
    if (sizes >= 0).any():
        recorded = with_sizes(recorded, rows, sizes)
    return recorded.with_facts(collective.TABLE, collective.TABLE.of_structs(collectives, row=described_rows))


def _fitting(fact: Collective) -> Collective:
    """Return a collective without numbers that do not fit in 64 bits."""
    large: dict[str, Any] = {
        name: None
        for name in fact.__struct_fields__
        if isinstance(value := getattr(fact, name), int) and not -(2**63) <= value < 2**63
    }
    return msgspec.structs.replace(fact, **large) if large else fact


_TIMED: Final = frozenset("XiIRC")
"""Values of ``ph`` for spans, instants and counters."""
_FLOWS: Final = frozenset("stf")
_PLAIN_ID: Final = re.compile(r"0|[1-9][0-9]{0,18}")


def _link_id(text: str) -> int:
    """Return a plain id as a number, or else the hash of its text as a negative number, as the scanner does."""
    if _PLAIN_ID.fullmatch(text) and int(text) < 2**63:
        return int(text)
    from perfkit_core.readers.scanner import tokens

    buffer = np.frombuffer(text.encode("utf-8", "replace") + bytes(tokens.PAD), np.uint8)
    return -1 - (int(tokens.hashed(buffer.ctypes.data, 0, len(buffer) - tokens.PAD)) >> 1)


_INSTANTS: Final = frozenset({schema.MEMORY, schema.COUNTER, schema.OTHER})
"""Kinds of events that may have no duration, so that the time 0 may be right."""


class EventCollector:
    """Collects the events of one file or capture, in order. :meth:`recorded` returns the input of ``assemble``.

    Events with an unsupported type or without a start are counted and left out. An event with an invalid time raises
    SourceError. If ``partial`` is set, such an event is also counted and left out.
    """

    def __init__(self, dialect: Dialect, partial: bool = False) -> None:
        self.thread_names: dict[str, str] = {}  # names of threads, by ``pid:tid``
        self.ids = ProcessIds()
        # flow events in ``Dialect.link_categories``, and the cells of those that the scanner read
        self._link_ends: list[ChromeEvent] = []
        self._scanned_ends: list[IntArray] = []
        self.links = self.metadata = self.blanks = 0  # number of flow events, metadata events and empty objects
        self.about_recording = 0  # number of events that describe the recording
        self.unknown: dict[str, int] = {}  # number of events of each unsupported type (``ph``)
        self.count = 0  # number of events with a supported type
        self.untimed = 0  # number of these without a start
        self.mistimed = 0  # number of events whose start or duration is not a time
        self.reversed = 0  # number of events with a negative duration, which is set to 0
        self._dialect, self._partial = dialect, partial
        self._labels: dict[tuple[str, str], Label] = {}
        self._origins = Origins()
        self._vocabularies = {column: Vocabulary() for column in ARGUMENT_TEXTS}
        self._translations: dict[int, Translation] = {}
        self._rows = row_table.Gathering()
        self._scanner: Scanner | None = None

    @property
    def row_count(self) -> int:
        return self._rows.count

    def add(self, events: Sequence[ChromeEvent] | Portion, times: tuple[IntArray, IntArray] | None = None) -> None:
        """Add decoded events, or a portion from the scanner. A live capture passes the starts and durations in ns."""
        if isinstance(events, Portion):
            self._add_scanned(events)
        else:
            lists, (start_ns, dur_ns), _ = self._one_by_one(events, times)
            self._gather(lists.rows(start_ns, dur_ns, self._origins, self._vocabularies))

    def add_text(self, text: bytes, times: tuple[IntArray, IntArray]) -> None:
        """Add the events in ``text``, which is a JSON array without its brackets. ``times`` are their starts and
        durations in ns. If the text is not valid or has another number of events, raise ValueError and add nothing."""
        if self._dialect.scan_rules and text.startswith(b"{"):
            from perfkit_core.readers.scanner import chunks, events
            from perfkit_core.readers.scanner.scanner import Scanner, padded

            self._scanner = self._scanner or Scanner(self._dialect)
            portion, scanned = chunks.accepted(self._scanner.scan(padded(text + b"]"), 0, len(text) + 1))
            complete = scanned.status == events.CLOSED and scanned.position == len(text)
            if complete and sum(part.rows for part in portion.stretches) == len(times[0]):
                self._add_scanned(portion, times)
                return
        decoded = DECODER.decode(b"[" + text + b"]")
        if len(decoded) != len(times[0]):
            raise ValueError(f"{len(decoded)} events, but times of {len(times[0])} events")
        self.add(decoded, times)

    def recorded(self, base_ns: int = 0, in_order: bool = True) -> draft.RecordedEvents:
        """Return the events that were added since the last call, with what they describe. ``base_ns`` is added to their
        starts. With ``in_order``, the events are sorted like the event table."""
        table = row_table.RowTable(self._rows.drain(), self._origins, self._vocabularies, base_ns, in_order)
        return described(draft.RecordedEvents(table.table(compact=True)), self._dialect)

    def drain(self) -> pa.Table:
        """Return the events that were added since the last call, as a table in the order of the source."""
        table = row_table.RowTable(self._rows.drain(), self._origins, self._vocabularies, 0, in_order=False)
        return table.table(compact=False)

    def link_ends(self, base_ns: int = 0) -> LinkEnds:
        """Return the ends of links that have a time and a thread. ``base_ns`` is added to their times."""
        at, (time_ns, _) = timed_events(self._link_ends, partial=True)
        cells = []
        for event, time in zip([self._link_ends[i] for i in at], time_ns.tolist(), strict=True):
            pid, tid = self.ids.number(event.pid), self.ids.number(event.tid)
            if pid is not None and tid is not None:
                category = self._dialect.link_categories.index(event.cat) + 1
                cells.append((category, _link_id(str(event.id)), event.ph == "s", pid, tid, time))
        ends = np.concatenate([np.array(cells, np.int64).reshape(-1, len(LinkEnds._fields)), *self._scanned_ends])
        return LinkEnds(*ends.T)._replace(time_ns=ends[:, -1] + base_ns)

    def _add_scanned(self, portion: Portion, times: tuple[IntArray, IntArray] | None = None) -> None:
        first = 0
        for stretch, events in zip(portion.stretches, portion.slow, strict=True):
            here = slice(first, first + stretch.rows)
            first += stretch.rows
            at = np.array([event.row for event in stretch.slow], np.int64)
            part_times = None if times is None else (times[0][here], times[1][here])
            slow_times = None if part_times is None else (part_times[0][at], part_times[1][at])
            lists, (start_ns, dur_ns), positions = self._one_by_one(events, slow_times)  # only events that become rows
            words = stretch.words
            if id(words) not in self._translations:  # the id stays unique, because the Translation holds ``words``
                self._translations[id(words)] = Translation(
                    words, self._dialect, self._origins, self._vocabularies, self.ids
                )
            part = self._translations[id(words)].rows(stretch, lists, at[positions])
            self._count(stretch.skipped)
            self._add_links(stretch)
            if part_times is not None:
                part.integers |= {"start_ns": part_times[0], "dur_ns": part_times[1]}
            if positions:
                part.put(at[positions], lists.rows(start_ns, dur_ns, self._origins, self._vocabularies))
            for rows in part.without(np.delete(at, positions)):
                self._gather(rows)

    def _add_links(self, stretch: event_rows.Stretch) -> None:
        ends = stretch.link_ends
        if len(ends):
            tokens, of_end = np.unique(ends[:, 3:5], return_inverse=True)
            numbers = [self.ids.number(stretch.words.tokens[token]) for token in tokens.tolist()]
            valid = np.array([number is not None for number in numbers], np.bool_)[of_end].reshape(-1, 2).all(axis=1)
            ends[:, 3:5] = np.array([number or 0 for number in numbers], np.int64)[of_end].reshape(-1, 2)
            self._scanned_ends.append(ends[valid])

    def _gather(self, part: Rows) -> None:
        start = part.integers["start_ns"]
        untimed = start == NULL
        if not start.all():  # a span at 0 without a duration has lost its times
            spans = np.array([origin.kind not in _INSTANTS for origin in self._origins.distinct], np.bool_)
            untimed |= (start == 0) & (part.integers["dur_ns"] == 0) & spans[part.origin]
        untimed = np.flatnonzero(untimed)
        self.count += part.count
        self.untimed += len(untimed)
        for rows in part.without(untimed):
            duration = rows.integers["dur_ns"]
            if rows.count and duration.min() < 0:
                self.reversed += int((duration < 0).sum())
                rows.integers["dur_ns"] = np.maximum(duration, 0)
            self._rows.add(rows)

    def _one_by_one(
        self, events: Sequence[ChromeEvent], times: tuple[IntArray, IntArray] | None = None
    ) -> tuple[event_rows.RowLists, tuple[IntArray, IntArray], list[int]]:
        """Select the events that become rows. Return their cells, their times, and their positions in ``events``. No
        other code loops over events in Python."""
        positions = [i for i, event in enumerate(events) if self._is_row(event)]
        if times is not None:
            start_ns, dur_ns = times[0][positions], times[1][positions]
        else:
            timed, (start_ns, dur_ns) = timed_events([events[i] for i in positions], self._partial)
            self.mistimed += len(positions) - len(timed)
            positions = [positions[at] for at in timed]
            start_ns[[at for at, i in enumerate(positions) if not bytes(events[i].ts)]] = NULL
        lists = event_rows.RowLists(self._dialect, self._labels, self.ids)
        for i in positions:
            lists.take(events[i])
        return lists, (start_ns, dur_ns), positions

    def _is_row(self, event: ChromeEvent) -> bool:
        """Return whether the event becomes a row. Store the names of threads, and count events of unsupported types."""
        ph = event.ph if isinstance(event.ph, str) or event.ph is None else repr(event.ph)
        if ph in _TIMED:
            keeps = self._dialect.keeps(event)
            self.about_recording += not keeps
            return keeps
        if ph == "M":
            self._name(event)
        elif ph in _FLOWS:
            if event.cat in self._dialect.link_categories and event.id is not None:
                self._link_ends.append(event)
        elif ph is not None:
            self.unknown[ph] = self.unknown.get(ph, 0) + 1
        self._count(Skipped(ph in _FLOWS, ph == "M", ph is None))  # Paddle's list ends with {}
        return False

    def _count(self, skipped: Skipped) -> None:
        self.links += skipped.links
        self.metadata += skipped.metadata
        self.blanks += skipped.blanks

    def _name(self, event: ChromeEvent) -> None:
        """Store the name of a thread, or the name or labels of a process, from a metadata event."""
        if event.name in ("process_name", "process_labels"):
            self.ids.describe(event.name, event.pid, event.args)
            return
        name = event.args.get("name") if isinstance(event.args, dict) else None
        if event.name != "thread_name" or not isinstance(name, str):
            return
        pid, tid = self.ids.number(event.pid), self._dialect.thread(event.tid)
        tid = self.ids.number(event.tid) if tid is None else tid
        if pid is not None and tid is not None:
            self.thread_names.setdefault(f"{pid}:{tid}", name.strip())
