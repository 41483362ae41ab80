"""What a framework's trace means: the part of a Chrome-trace reader that an adapter writes.

A dialect names things (kind, phase, device); :class:`Recorder` turns recorded events into columns with it. Live
captures feed the same recorder, so that a run means the same live and from its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from perfkit_core import schema
from perfkit_core.assemble import Recorded
from perfkit_core.sources.chrome import ChromeEvent
from perfkit_core.sources.decimals import to_ns
from perfkit_core.trace import IntArray

_DIGITS: Final = re.compile(r"-?\d{1,18}")
_INTEGERS: Final = ("correlation", "external", "stream", "sequence", "bytes", "address", "total_bytes", "flops")
_TEXTS: Final = ("shapes", "dtypes", "stack", "copy_kind", "module")
_SPANS: Final = frozenset("X")
_INSTANTS: Final = frozenset("iIRC")
_FLOWS: Final = frozenset("stf")


class Label(NamedTuple):
    """What the name and category of an event say.

    ``phase`` marks the whole subtree; ``step`` numbers a step; ``backend`` is the device type (None: the host);
    ``layer`` names the layer whose call the event spans, as one part of its path.
    """

    kind: str
    phase: str | None = None
    step: int | None = None
    backend: str | None = None
    copy_kind: str | None = None
    layer: str | None = None


class Dialect:
    """Base class: override what differs. One instance reads one file."""

    framework: ClassVar[str] = ""
    arguments: ClassVar[Mapping[str, str]] = {}
    """Event argument → column of the schema, or ``external``: an id that an operator shares with its launches."""

    def label(self, category: str, name: str) -> Label:
        """Meaning of a category and (clean) name. Called once for each distinct pair."""
        return Label(schema.OTHER)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        """The label of one event, where its arguments change what its name says."""
        return label

    def keeps(self, event: ChromeEvent) -> bool:
        """False for events that describe the recording rather than the run; the dialect takes note of them itself."""
        return True

    def clean_name(self, name: str) -> str:
        """The name without what differs from call to call for no reason."""
        return name

    def thread(self, tid: Any) -> int | None:
        """Operating system thread from the ``tid`` field of a host event."""
        return integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        """Value of the device column for a device event or a memory event."""
        index = integer(args.get("device", pid))
        return f"{label.backend or schema.CPU}:{0 if index is None else index}" if label.backend else schema.CPU

    def times(self, events: Sequence[ChromeEvent]) -> tuple[IntArray, IntArray]:
        """Start and duration of a batch in ns, each of shape (events,)."""
        return to_ns([bytes(e.ts) for e in events]), to_ns([bytes(e.dur) for e in events])


def integer(value: Any) -> int | None:
    """An int from what JSON may hold (number, digits in a string); None for everything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else _wrapped(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return None


def _wrapped(value: int) -> int | None:
    """An unsigned 64-bit address as the int64 with the same bits."""
    return value - 2**64 if 0 <= value < 2**64 else None


class Recorder:
    """Collects batches of Chrome events as Arrow columns; :meth:`recorded` returns what ``assemble`` takes.

    Also keeps what metadata events say: ``thread_names`` and ``process_names``; ``unknown`` counts events by an
    unsupported ``ph``.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.thread_names: dict[str, str] = {}
        self.unknown: dict[str, int] = {}
        self._dialect = dialect
        self._labels: dict[tuple[str, str], Label] = {}
        self._batches: list[pa.RecordBatch] = []

    def add(self, events: Sequence[ChromeEvent], times: tuple[IntArray, IntArray] | None = None) -> None:
        """Take one batch. The only Python loop over events.

        ``times``: start and duration in ns, each of shape (events,), where they are known already (live captures).
        """
        kept = [i for i, event in enumerate(events) if self._wanted(event)]
        if not kept:
            return
        rows = _Rows()
        for i in kept:
            self._row(rows, events[i])
        if times is None:
            start_ns, dur_ns = self._dialect.times([events[i] for i in kept])
        else:
            start_ns, dur_ns = times[0][kept], times[1][kept]
        self._batches.append(rows.batch(start_ns, dur_ns))

    def recorded(self, base_ns: int = 0) -> Recorded:
        """All events so far, their starts shifted by ``base_ns``."""
        batches = self._batches or [_Rows().batch(np.empty(0, np.int64), np.empty(0, np.int64))]
        table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
        start_ns = pa.chunked_array([table["start_ns"].to_numpy() + base_ns])
        return Recorded(table.set_column(table.schema.get_field_index("start_ns"), "start_ns", start_ns))

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

    def _row(self, rows: _Rows, event: ChromeEvent) -> None:
        dialect = self._dialect
        name = dialect.clean_name(event.name if isinstance(event.name, str) else str(event.name))
        category = event.cat if isinstance(event.cat, str) else ""
        key = (category, name)
        label = self._labels.get(key)
        if label is None:
            label = self._labels[key] = dialect.label(category, name)
        args = event.args if isinstance(event.args, dict) else {}
        label = dialect.refine(label, args)
        rows.name.append(name)
        rows.kind.append(label.kind)
        rows.category.append(category or None)
        rows.step.append(label.step)
        rows.phase.append(label.phase)
        rows.layer.append(label.layer)
        if label.backend is None:
            rows.pid.append(integer(event.pid))
            rows.tid.append(dialect.thread(event.tid))
            rows.device.append(dialect.device(label, event.pid, args) if label.kind == schema.MEMORY else schema.CPU)
        else:
            rows.pid.append(None)
            rows.tid.append(None)
            rows.device.append(dialect.device(label, event.pid, args))
        rows.take(args, dialect.arguments, label)


class _Rows:
    """Python lists for one batch, one a column."""

    def __init__(self) -> None:
        self.name: list[str] = []
        self.kind: list[str] = []
        self.category: list[str | None] = []
        self.pid: list[int | None] = []
        self.tid: list[int | None] = []
        self.device: list[str] = []
        self.step: list[int | None] = []
        self.phase: list[str | None] = []
        self.layer: list[str | None] = []
        self.args: list[str | None] = []
        self.integers: dict[str, list[int | None]] = {column: [] for column in _INTEGERS}
        self.texts: dict[str, list[str | None]] = {column: [] for column in _TEXTS}

    def take(self, args: dict[str, Any], arguments: Mapping[str, str], label: Label) -> None:
        """Spread the arguments over their columns; what has no column stays JSON."""
        found: dict[str, Any] = {"copy_kind": label.copy_kind}
        rest = {}
        for key, value in args.items():
            column = arguments.get(key)
            if column == "stream" and label.backend is None:  # a launch names the stream of its work, not its own
                column = None
            if column is None or found.get(column) is not None:
                rest[key] = value
            else:
                found[column] = value
        for column, integers in self.integers.items():
            integers.append(integer(found.get(column)))
        for column, texts in self.texts.items():
            texts.append(_text(found.get(column)))
        self.args.append(msgspec.json.encode(rest).decode() if rest else None)

    def batch(self, start_ns: IntArray, dur_ns: IntArray) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {
            "start_ns": pa.array(start_ns),
            "dur_ns": pa.array(dur_ns),
            "pid": pa.array(self.pid, pa.int64()),
            "tid": pa.array(self.tid, pa.int64()),
            "step": pa.array(self.step, pa.int64()),
            "args": pa.array(self.args, pa.string()),
        }
        for column in ("name", "kind", "category", "device", "phase", "layer"):
            columns[column] = _dictionary(getattr(self, column))
        columns |= {column: pa.array(values, pa.int64()) for column, values in self.integers.items()}
        columns |= {column: _dictionary(values) for column, values in self.texts.items()}
        return pa.RecordBatch.from_pydict(columns)


def _dictionary(values: Iterable[str | None]) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode()


def _text(value: Any) -> str | None:
    if value is None or value == "" or isinstance(value, str):
        return value or None
    return msgspec.json.encode(value).decode()
