"""Base class of dialects. A dialect is the part of the Chrome-trace reader that depends on the framework. It assigns
kinds, phases and devices to the events of trace files and of live captures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.algorithms.decimals import to_ns
from perfkit_core.errors import SourceError
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.collective import Collective
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.serving_step import ServingStep


class ChromeEvent(msgspec.Struct, gc=False):
    """One event of a trace file. ``ts`` and ``dur`` remain text, so that no digit is lost."""

    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    pid: Any = None
    tid: Any = None
    args: Any = None
    id: Any = None


DECODER: Final = msgspec.json.Decoder(list[ChromeEvent])
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def timed_events(events: Sequence[ChromeEvent], partial: bool) -> tuple[list[int], tuple[IntArray, IntArray]]:
    """Return the indexes of the events with valid times, and the starts and durations of these events in ns. Raises
    SourceError for an invalid time, unless ``partial`` is set."""
    timed = list(range(len(events)))
    try:
        return timed, event_times(events)
    except SourceError:
        if not partial:
            raise
    for at, event in enumerate(events):
        try:
            event_times([event])
        except SourceError:
            timed.remove(at)
    return timed, event_times([events[at] for at in timed])


def event_times(events: Sequence[ChromeEvent]) -> tuple[IntArray, IntArray]:
    """Return the starts and the durations in ns, each of shape (events,). An event without a start gets the start 0.
    Raises SourceError for an invalid time. The error names the event."""
    starts, durations = [bytes(event.ts) or None for event in events], [bytes(event.dur) for event in events]

    def location(field: str, at: int) -> str:
        return f" ({field} of the event {str(events[at].name)[:80]!r})"

    return to_ns(starts, locate=partial(location, "ts")), to_ns(durations, locate=partial(location, "dur"))


_DIGITS: Final = re.compile(r"-?\d{1,18}")
_ALL_DIGITS: Final = re.compile(r"\d{1,6}(?!\d)")


class Label(NamedTuple):
    """The meaning of an event's category and name."""

    kind: str
    phase: str | None = None  # phase of the event and of all events inside it
    step: int | None = None  # number of the step
    backend: str | None = None  # type of the device, or None for the host
    copy_kind: str | None = None
    layer: str | None = None  # last part of the event's module path, for example ``Conv2d_3``


@dataclass(frozen=True, slots=True)
class ScanRules:
    """What the scanner must know about an adapter's files. The scanner is compiled code. It reads most events without
    calling the dialect. The slower reference reader, which calls the dialect for each event, reads these events:

    - events for which ``needs_reference(category, name)`` is true
    - if ``glued_durations`` is set: spans whose name does not end with a duration
    - events that have some, but not all, of the arguments listed in ``dropped_if_empty``
    - events in which an argument listed in ``dropped_if_empty`` is not empty
    - events with a negative value in an argument listed in ``not_negative``

    If a dialect sets ``scan_rules``, its methods ``keeps`` and ``refine`` may omit or change only events of this list.
    Its methods ``label`` and ``device`` must depend only on their arguments.
    """

    needs_reference: Callable[[str, str], bool] | None = None
    reference_names: bytes = b""  # 8 bytes, with which the names of events begin that need the reference reader
    glued_durations: bool = False  # whether names end with a duration, as in ``matmul[12.345 us]``
    dropped: frozenset[str] = frozenset()  # arguments that the scanner ignores
    dropped_if_empty: frozenset[str] = frozenset()  # arguments that the scanner ignores if all are present and empty
    not_negative: frozenset[str] = frozenset()  # arguments that are usually not negative
    device_arguments: tuple[str, ...] = ()  # arguments that ``device`` may use, at most three
    offset_argument: str | None = None  # argument with values such as ``"12.345 us"``, stored as ``offset_ns``


class Dialect:
    """Base class of dialects. Each instance reads one file. Subclasses override the methods that differ."""

    framework: ClassVar[str] = ""
    arguments: ClassVar[Mapping[str, str]] = {}
    """Maps event arguments to columns. The column ``external`` has an id that an operator shares with its launches,
    ``frame`` the number of a Python frame, and ``caller`` the number of the frame that called it."""
    scan_rules: ClassVar[ScanRules | None] = None
    """Rules for the scanner, the fast compiled reader. If None, the slower reference reader reads all events."""
    link_categories: ClassVar[tuple[str, ...]] = ()
    """Categories of the flow events that lead from host calls to device work without a correlation id."""

    def label(self, category: str, name: str) -> Label:
        """Return the label of a pair of category and cleaned name (:meth:`clean_name`). Readers cache the label."""
        return Label(schema.OTHER)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        """Return the label of one event. Override this method if the arguments can change what the name means."""
        return label

    def keeps(self, event: ChromeEvent) -> bool:
        """Return False to leave the event out. Override this method for events that describe the recording itself."""
        return True

    def clean_name(self, name: str) -> str:
        """Return the name without the parts that differ between calls of the same function."""
        return name

    def thread(self, tid: Any) -> int | None:
        """Return the operating system's thread id from the ``tid`` field of a host event, or None if there is none."""
        return integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        """Return the value of the device column for a device or memory event."""
        index = last_number(pid if args.get("device") is None else args["device"])
        return f"{label.backend or schema.CPU}:{0 if index is None else index}" if label.backend else schema.CPU

    def communicates(self, name: str, kind: str) -> bool:
        """Return whether events of this name and kind may be collectives. :meth:`described` is called for these."""
        return False

    def described(
        self, name: str, args: str | None, shapes: str | None, dtypes: str | None
    ) -> tuple[Collective | None, int]:
        """Return the collective of an event (None if none), and the size of its message in bytes (-1 if unknown).
        ``args``, ``shapes`` and ``dtypes`` are the event's values in these columns."""
        return None, -1

    def serving_step(self, name: str) -> ServingStep | None:
        """Return what the step of an inference server computes, if the name of a range says it. The method
        :meth:`label` must declare such a range as a step without a number."""
        return None


SCAN_FROM_BYTES: Final = 1 << 16
"""Smaller files are read by the slower reference reader, because starting the scanner's threads would take longer."""


def last_number(value: Any) -> int | None:
    """Return the number of a device: an integer, or the last number of a text such as ``[TP01] 3``."""
    number = integer(value)
    if number is None and isinstance(value, str) and (digits := _ALL_DIGITS.findall(value)):
        return int(digits[-1])
    return number


def device(backend: str, number: int, name: Any, memory_bytes: Any, properties: dict[str, Any]) -> Device:
    """Return a device that the header of a file describes. A name or size of the wrong type becomes None."""
    size, product = integer(memory_bytes), name if isinstance(name, str) else None
    return Device(f"{backend}:{number}", product, size if size is not None and size >= 0 else None, properties)


def integer(value: Any) -> int | None:
    """Return the integer in a JSON number or a string of digits, or None for any other value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        if 2**63 <= value < 2**64:
            return value - 2**64  # the int64 with the same bits as this unsigned address
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return None
