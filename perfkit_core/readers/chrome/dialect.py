"""The dialect of a framework: the part of a Chrome-trace reader that an adapter writes.

A dialect gives events their meaning (kind, phase, device); :class:`perfkit_core.readers.chrome.recorder.Recorder` turns
recorded events into columns with it. Live captures feed the same recorder, so a run means the same live and from its
file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from perfkit_core.algorithms.arrays import IntArray
from perfkit_core.algorithms.decimals import to_ns
from perfkit_core.assembly.labels import Collective
from perfkit_core.errors import SourceError
from perfkit_core.model import schema


class ChromeEvent(msgspec.Struct, gc=False):
    """One event as the reference decodes it. ``ts`` and ``dur`` stay text, so that no digit is lost; a missing ``ts``
    is empty."""

    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"0")
    pid: Any = None
    tid: Any = None
    args: Any = None


DECODER: Final = msgspec.json.Decoder(list[ChromeEvent])
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding text that is not JSON, or nested too deep."""

Times = Callable[[Sequence[ChromeEvent]], tuple[IntArray, IntArray]]
"""Start and duration of events in ns, each of shape (events,). Raises SourceError."""


def is_timed(event: ChromeEvent, times: Times) -> bool:
    """Return whether the times of an event can be read."""
    try:
        times([event])
    except SourceError:
        return False
    return True


def event_times(events: Sequence[ChromeEvent]) -> tuple[IntArray, IntArray]:
    """Return start (0 where there is none) and duration in ns, each of shape (events,).

    Raises SourceError, which names the event.
    """
    starts, durations = [bytes(event.ts) or None for event in events], [bytes(event.dur) for event in events]

    def place(field: str, at: int) -> str:
        return f" ({field} of the event {str(events[at].name)[:80]!r})"

    return to_ns(starts, place=partial(place, "ts")), to_ns(durations, place=partial(place, "dur"))


_DIGITS: Final = re.compile(r"-?\d{1,18}")


class Label(NamedTuple):
    """Meaning of the name and category of an event.

    ``phase`` marks the whole subtree; ``step`` numbers a step; ``backend`` is the device type (None: the host);
    ``layer`` names the layer whose call the event spans, as one part of its path.
    """

    kind: str
    phase: str | None = None
    step: int | None = None
    backend: str | None = None
    copy_kind: str | None = None
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class ScanRules:
    """Facts about an adapter's files with which the scanner reads them without asking the dialect about each event.

    A dialect with rules promises that its ``label`` and ``device`` depend on their arguments alone, and that ``keeps``
    and ``refine`` change nothing but what is declared here.

    ``needs_reference(category, name)``: events of this pair go through the dialect one by one (``keeps``, ``refine``).
    ``glued_durations``: every span's name ends with its duration, which ``clean_name`` removes; a span without one goes
    through the dialect. ``dropped`` arguments are ignored, as are those of ``dropped_if_empty`` when an event has all
    of them and they are empty; otherwise it goes through the dialect, as does an event with a negative argument of
    ``not_negative``. ``device`` uses ``device_arguments`` only (at most three). ``offset_argument``: a start as text,
    ``"12.345 us"``, that becomes the column ``offset_ns``.
    """

    needs_reference: Callable[[str, str], bool] | None = None
    glued_durations: bool = False
    dropped: frozenset[str] = frozenset()
    dropped_if_empty: frozenset[str] = frozenset()
    not_negative: frozenset[str] = frozenset()
    device_arguments: tuple[str, ...] = ()
    offset_argument: str | None = None


class Dialect:
    """Base class: override what differs. One instance reads one file."""

    framework: ClassVar[str] = ""
    arguments: ClassVar[Mapping[str, str]] = {}
    """Event argument → column of the schema, or ``external``: an id that an operator shares with its launches."""
    scan_rules: ClassVar[ScanRules | None] = None
    """With rules, files and live texts are read by the scanner as far as possible; without, event by event."""

    def label(self, category: str, name: str) -> Label:
        """Return the meaning of a category and (clean) name. Called once for each distinct pair."""
        return Label(schema.OTHER)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        """Return the label of one event, where its arguments change the meaning of its name."""
        return label

    def keeps(self, event: ChromeEvent) -> bool:
        """Return False for events that describe the recording rather than the run; the dialect keeps notes of them."""
        return True

    def clean_name(self, name: str) -> str:
        """Return the name without parts that differ from call to call for no reason."""
        return name

    def thread(self, tid: Any) -> int | None:
        """Return the operating system thread from the ``tid`` field of a host event."""
        return integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        """Return the value of the device column for a device event or a memory event."""
        index = integer(pid if args.get("device") is None else args["device"])
        return f"{label.backend or schema.CPU}:{0 if index is None else index}" if label.backend else schema.CPU

    def communicates(self, name: str, kind: str) -> bool:
        """Return whether events of this name and kind may be collectives, to be :meth:`described` one by one."""
        return False

    def described(
        self, name: str, args: str | None, shapes: str | None, dtypes: str | None
    ) -> tuple[Collective | None, int]:
        """Return the collective of an event, from its cells, and the bytes of its message, -1 where unknown."""
        return None, -1

    def times(self, events: Sequence[ChromeEvent]) -> tuple[IntArray, IntArray]:
        """As :func:`event_times`: return start and duration of a batch in ns, each of shape (events,)."""
        return event_times(events)


SCAN_FROM_BYTES: Final = 4 << 20
"""What the reference reads in one process, in one file or several, before loading the compiled code pays off."""


def can_scan(dialect: Dialect) -> bool:
    """Return whether the dialect declares everything that the scanner needs."""
    return dialect.scan_rules is not None and type(dialect).times is Dialect.times


def integer(value: Any) -> int | None:
    """Return an int from what JSON may hold (number, digits in a string); None for everything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        if 2**63 <= value < 2**64:
            return value - 2**64  # an unsigned address becomes the int64 with the same bits
        return value if -(2**63) <= value < 2**63 else None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return None
