"""Reader of Paddle's Chrome JSON.

The file does not record parents. They follow from the order of the events, because Paddle writes the tree of each
thread breadth first. In the file, the order of the events has two properties:

- An event's parent does not come before the previous event's parent.
- The runtime calls and memory events of a host event directly follow this event.

The times are rounded. They only decide which of the possible parents is right. Each event records its start twice
(``schemaVersion`` 1.0.x, Paddle 2.3 to 3.3):

- ``ts``: the time since 1970, truncated to whole µs.
- ``start_time``: the µs since the first host event, as float32. The error grows with time: it is below 1 ns in the
  first 8 ms, 4 ns at 0.1 s, 30 ns at 1 s, and 0.5 µs at 10 s.

perfkit combines both times, so the error of a start is at most 1 µs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perfkit_core.base.algorithms import groupby, nesting
from perfkit_core.base.algorithms.arrays import NO_ROW, BoolArray, IntArray, one_of
from perfkit_core.base.runtime.compiled import Out, compiled
from perfkit_core.plugins.contracts import EventWriter
from perfkit_core.readers.chrome.dialect import ChromeEvent, Dialect, Label, ScanRules, integer
from perfkit_core.readers.chrome.process_ids import with_ranks
from perfkit_core.readers.chrome.reader import Reading, file_account, file_findings
from perfkit_core.trace.assembly import draft, labels
from perfkit_core.trace.assembly.assemble import assemble_ranks
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.meta import Finding, TraceMeta
from perfkit_core.trace.model.schema import CPU, MEMORY, RUNTIME, SYNC, UNKNOWN
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import findings, names, operator_names
from perfkit_paddle.findings import make_meta, processes

_START_TIME: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) us", re.ASCII)
_FLOAT32_STEPS: Final = 2.0**-23
"""Largest relative error of a time that Paddle rounded to float32 twice: first in ns, then in µs."""
_MICROSECOND_NS: Final = 1000


def float_error(ns: IntArray) -> IntArray:
    """Return the largest error of each time, in ns. The times were written as float32 µs with three decimals."""
    return np.asarray(np.floor(ns * _FLOAT32_STEPS + 0.75), np.int64)


def offset(text: object) -> int | None:
    """Return a ``start_time`` such as "12.345 us" in ns, rounded half to even. Return None for other texts."""
    match = _START_TIME.fullmatch(text) if isinstance(text, str) else None
    return round(Decimal(match[1]) * _MICROSECOND_NS) if match else None


def refine(whole_us_ns: IntArray, offset_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the start of each event, and the largest error of each start. ``whole_us_ns`` are the starts, truncated
    to whole µs. ``offset_ns`` are the offsets from the first event, or negative if unknown. All values are in ns."""
    has_offset = offset_ns >= 0
    error, last = float_error(offset_ns), _MICROSECOND_NS - 1
    if not has_offset.any():
        return whole_us_ns, np.full_like(offset_ns, last)
    # The time at offset 0 is unknown. Each event limits it to a range. Use the middle of the common part of all ranges.
    low = int((whole_us_ns - offset_ns - error)[has_offset].max())
    high = int((whole_us_ns + last - offset_ns + error)[has_offset].min())
    origin, origin_error = (low + high) // 2, max((high - low + 1) // 2, 0)
    start = np.where(has_offset, np.clip(origin + offset_ns, whole_us_ns, whole_us_ns + last), whole_us_ns)
    return start, np.where(has_offset, np.minimum(error + origin_error, last), last)


_DURATION: Final = re.compile(r"\[\d+(?:\.\d+)? (?:ns|us|ms|s)\]$")
_THREAD: Final = re.compile(r"(\d{1,18})\((?:Python|C\+\+)\)")
_INPUT_KEYS: Final = ("input_shapes", "input_dtypes", "callstack")


class PaddleDialect(Dialect):
    """The dialect for one file. It also counts the data-quality problems of the file."""

    framework = "paddle"
    arguments: ClassVar[Mapping[str, str]] = {
        "correlation id": "correlation",
        "stream": "stream",
        "bytes": "bytes",
        "addr": "address",
        "increase_bytes": "bytes",
        "current_allocated": "total_bytes",
        "shapes": "shapes",
        "stack": "stack",
        "start_time": "offset_ns",
    }
    scan_rules = ScanRules(
        needs_reference=lambda category, name: not names.is_known(category),
        glued_durations=True,
        dropped=frozenset({"end_time", "device"}),
        dropped_if_empty=frozenset(_INPUT_KEYS),
        not_negative=frozenset({"bytes"}),
        device_arguments=("place",),
        offset_argument="start_time",
    )

    def __init__(self) -> None:
        self.unlabelled = 0
        self.overflowed = 0

    def label(self, category: str, name: str) -> Label:
        return names.label(category, name) if names.is_known(category) else Label(UNKNOWN)

    def clean_name(self, name: str) -> str:
        return _DURATION.sub("", name)

    def thread(self, tid: Any) -> int | None:
        match = _THREAD.fullmatch(tid) if isinstance(tid, str) else None
        return int(match[1]) if match else integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        if label.kind == MEMORY:
            return names.place_device(str(args.get("place", "")))
        index = integer(pid)  # device number; some events lack the argument "device"
        return f"{label.backend}:{0 if index is None else index}"

    def keeps(self, event: ChromeEvent) -> bool:
        """Convert the event's arguments, and count its problems. Return True, because every event is kept."""
        args: dict[str, Any] = event.args if isinstance(event.args, dict) else {}
        args.pop("end_time", None)
        args.pop("device", None)
        if "start_time" in args:
            args["start_time"] = offset(args["start_time"])
        if event.ph == "X" and not (isinstance(event.name, str) and _DURATION.search(event.name)):
            self.unlabelled += 1
        if "bytes" in args and (integer(args["bytes"]) or 0) < 0:
            del args["bytes"]
            self.overflowed += 1
        if "callstack" in args:
            event.args = {key: value for key, value in args.items() if key not in _INPUT_KEYS} | _inputs(args)
        return True


def _inputs(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return shapes and types of an operator's inputs, and its stack. The keys are those of the protobuf reader."""
    shapes, types = (
        {slot: items for slot, items in value.items() if isinstance(items, list)} if isinstance(value, dict) else {}
        for value in (args.get("input_shapes"), args.get("input_dtypes"))
    )
    stack = args.get("callstack")
    columns = {
        "shapes": [shape for slot in shapes.values() for shape in slot],
        "stack": names.stack_text(stack if isinstance(stack, str) else ""),
        "input_slots": {slot: len(items) for slot, items in shapes.items()},
        "input_types": types,
    }
    return {key: value for key, value in columns.items() if value}


def parents(
    thread: IntArray, host: BoolArray, attached: BoolArray, start: IntArray, end: IntArray, slack: IntArray
) -> tuple[IntArray, int]:
    """Return each event's parent row (-1 without a parent), and the number of threads whose events are in an unexpected
    order. In such a thread, only the times determine the parents. All arrays have the shape (rows,), in the order of
    the file.

    - ``host``: mask of the host events, which form the tree.
    - ``attached``: mask of runtime calls and memory events. They belong to the host event before them.
    - ``slack``: the largest error of the times.
    """
    parent = np.full(len(thread), NO_ROW, np.int64)
    nodes = np.flatnonzero(host | attached)
    by_thread = nodes[np.argsort(thread[nodes], kind="stable")]
    odd = 0
    for rows in np.split(by_thread, np.flatnonzero(np.diff(thread[by_thread])) + 1) if len(nodes) else ():
        above = np.full(len(rows), NO_ROW, np.int64)
        if not _level_by_level(host[rows], start[rows], end[rows], slack[rows], above):
            odd += 1
            above = nesting.nest(np.zeros(len(rows), np.int64), start[rows], end[rows])
        parent[rows] = np.where(above == NO_ROW, NO_ROW, rows[above])
    return parent, odd


@compiled
def _level_by_level(host: BoolArray, start: IntArray, end: IntArray, slack: IntArray, parent: Out[IntArray]) -> bool:
    """Set the parents within one thread. Return False if some event fits into no possible parent."""
    node = -1  # the last host event; runtime calls and memory events after it belong to it
    current = -1  # the parent of the last host event, -1 for the root
    for i in range(len(host)):
        if not host[i]:
            parent[i] = node
            continue
        before = node
        node = i
        if before < 0 or (parent[before] == current and _follows(current, before, i, start, end, slack)):
            parent[i] = current
            continue
        candidate = _next_parent(host, current, i, start, end, slack)
        if candidate < 0 and current >= 0 and _misfit(current, i, start, end) <= slack[current] + slack[i]:
            candidate = current  # Paddle does not sort siblings that overlap
        if candidate < 0:
            return False
        current = candidate
        parent[i] = candidate
    return True


@compiled
def _misfit(outer, inner, start, end):  # type: ignore[no-untyped-def]
    return max(start[outer] - start[inner], end[inner] - end[outer], 0)


@compiled
def _follows(current, before, i, start, end, slack):  # type: ignore[no-untyped-def]
    """Return whether event ``i`` can be the next sibling of event ``before``, with the parent ``current``."""
    if start[i] + slack[i] + slack[before] < end[before]:
        return False
    return current < 0 or _misfit(current, i, start, end) <= slack[current] + slack[i]


@compiled
def _next_parent(host, current, i, start, end, slack):  # type: ignore[no-untyped-def]
    best = -1
    for candidate in range(current + 1, i):
        if not host[candidate]:
            continue
        misfit = _misfit(candidate, i, start, end)
        if best >= 0:
            return candidate if misfit < _misfit(best, i, start, end) else best
        if misfit <= slack[candidate] + slack[i]:
            best = candidate
            if misfit == 0:
                return best
    return best


FORMAT: Final = "paddle-json"
_HEADER: Final = ("schemaVersion", "span_index", "span_indx")
_DEEPEST: Final = 64
"""Maximum number of tree levels that :func:`_inside_parents` corrects."""


def read_json(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a file. Raises SourceError if the file is damaged or has another format."""
    reading = _Reading(path, partial)
    reading.read()
    recorded = reading.collector.recorded(in_order=False).with_account(reading.account())
    meta = reading.meta(processes(recorded.columns))
    recorded, meta, quality = complete(recorded, meta)
    return assemble_ranks(recorded, meta, (*reading.findings(), *quality), operator_names.operator_name)


def stream(path: Path, partial: bool, writer: EventWriter) -> None:
    """Read the file in portions and write them to ``writer``. Raises SourceError as :func:`read_json` does."""
    reading = _Reading(path, partial, sparing=True)
    reading.stream(writer)
    writer.close(reading.meta(reading.processes), reading.findings(), account=reading.account())


class _Reading(Reading[PaddleDialect]):
    def __init__(self, path: Path, partial: bool, sparing: bool = False) -> None:
        super().__init__(path, PaddleDialect(), partial, sparing)
        self.processes: dict[int, int] = {}  # thread → process, collected while streaming

    def see(self, events: pa.Table) -> None:
        self.processes.update(processes(events))

    def meta(self, processes: Mapping[int, int]) -> TraceMeta:
        header = self.file.header
        extra_info, described = header.get("ExtraInfo"), header.get("deviceProperties")
        texts = extra_info.items() if isinstance(extra_info, dict) else ()
        properties = described if isinstance(described, list) else ()
        return make_meta(
            processes,
            {key: text for key, text in texts if isinstance(text, str)},
            None,
            devices=tuple(findings.device(p, p.get("name")) for p in properties if isinstance(p, dict)),
            source=str(self.file.path),
            format=FORMAT,
            incomplete=self.file.truncated_at is not None,
            process_names={f"-:{key}": name for key, name in self.collector.ids.names.items()},
            process_labels={f"-:{key}": label for key, label in self.collector.ids.labels.items()},
            extra={key: header[key] for key in _HEADER if key in header},
        )

    def account(self) -> tuple[ReadEvents, ...]:
        return file_account(self.file, self.collector)

    def findings(self) -> tuple[Finding, ...]:
        dialect, quality = self.dialect, [*file_findings(self.file, self.collector)]
        if dialect.unlabelled:
            quality.append(findings.unlabelled(dialect.unlabelled))
        if dialect.overflowed:
            quality.append(findings.overflowed_bytes(dialect.overflowed))
        return tuple(quality)


def complete(
    recorded: draft.RecordedEvents, meta: TraceMeta
) -> tuple[draft.RecordedEvents, TraceMeta, tuple[Finding, ...]]:
    """Refine the starts of events, add their parents, and return warnings too. ``recorded`` must be in file order."""
    events, parent = recorded.columns, recorded.parent
    quality: tuple[Finding, ...] = ()
    if events.num_rows:
        offsets = pc.fill_null(events["offset_ns"], -1).to_numpy()
        start, start_error = refine(events["start_ns"].to_numpy(), offsets)
        dur = events["dur_ns"].to_numpy()
        dur_error = float_error(dur)
        parent, odd = _parents(events, start, dur, start_error + dur_error)
        memory = one_of(events["kind"], MEMORY)
        errors = (start_error[~memory], dur_error, start_error[memory])
        rounded = findings.rounded(*(int(error.max(initial=0)) for error in errors))
        quality = (rounded, findings.parents_rebuilt(odd))
        start, dur = _inside_parents(parent, start, dur)
        for name, values in (("start_ns", start), ("dur_ns", dur)):
            events = events.set_column(events.column_names.index(name), name, pa.array(values))
    recorded = replace(recorded, columns=events, parent=parent)
    recorded, about_processes = with_ranks(labels.with_labels(recorded))
    return recorded, meta, (*quality, *findings.devices(events, meta.devices), *about_processes)


def _parents(events: pa.Table, start: IntArray, dur: IntArray, slack: IntArray) -> tuple[IntArray, int]:
    attached = one_of(events["kind"], MEMORY, RUNTIME, SYNC)
    has_thread = ~events["tid"].is_null().to_numpy()
    host: BoolArray = one_of(events["device"], CPU) & ~attached & has_thread
    ids = [pc.fill_null(events[column], -1).to_numpy() for column in ("pid", "tid")]
    thread, _ = groupby.distinct(ids, len(host))
    return parents(thread, host, attached & has_thread, start, start + dur, slack)


def _inside_parents(parent: IntArray, start: IntArray, dur: IntArray) -> tuple[IntArray, IntArray]:
    """Correct rounding errors, so that parents sort before their children. If a child starts before its parent, move
    the child to the parent's start. If both start together and the child is longer, cut it to the parent's duration."""
    start, dur = start.copy(), dur.copy()
    for _ in range(_DEEPEST):  # each pass corrects one level of the tree
        above = np.where(parent == NO_ROW, np.arange(len(parent)), parent)
        early = start < start[above]
        longer = (start == start[above]) & (dur > dur[above])
        if not (early | longer).any():
            break
        start = np.maximum(start, start[above])
        dur = np.where(longer, dur[above], dur)
    return start, dur
