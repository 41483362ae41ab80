"""Base class of dialects: the part of a Chrome-trace reader that an adapter writes. A dialect gives recorded events
their kind, phase and device, equally for files and live captures."""

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


def timed_events(events: Sequence[ChromeEvent], partial: bool) -> tuple[list[int], tuple[IntArray, IntArray]]:
    """Return the indexes of the events with valid times, and their :func:`event_times`. Without ``partial``, an invalid
    time raises SourceError."""
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
    """Return start (0 if missing) and duration in ns, each of shape (events,). Raises SourceError, which names the
    event."""
    starts, durations = [bytes(event.ts) or None for event in events], [bytes(event.dur) for event in events]

    def place(field: str, at: int) -> str:
        return f" ({field} of the event {str(events[at].name)[:80]!r})"

    return to_ns(starts, place=partial(place, "ts")), to_ns(durations, place=partial(place, "dur"))


_DIGITS: Final = re.compile(r"-?\d{1,18}")


class Label(NamedTuple):
    """Meaning of an event's category and name. ``phase`` applies to the whole subtree; ``step`` numbers a step;
    ``backend`` is the device type (None: host); ``layer`` is the part that a call adds to the path of its layer."""

    kind: str
    phase: str | None = None
    step: int | None = None
    backend: str | None = None
    copy_kind: str | None = None
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class ScanRules:
    """Facts about an adapter's files that let the scanner read events without calling the dialect for each.

    The ``label`` and ``device`` of a dialect with rules must depend on their arguments only, and ``keeps`` and
    ``refine`` must change nothing but what is declared here.

    ``needs_reference(category, name)``: such events pass through the dialect one by one (``keeps``, ``refine``).
    ``glued_durations``: span names end with their duration, which ``clean_name`` removes; a span without one passes
    through the dialect. ``dropped`` arguments are ignored, as are those of ``dropped_if_empty`` if an event has all of
    them and they are empty; other such events pass through the dialect, as do events with a negative argument of
    ``not_negative``. ``device`` uses ``device_arguments`` only (at most three). ``offset_argument``: a start as text,
    ``"12.345 us"``, for the column ``offset_ns``.
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
    """With rules the scanner reads files and live texts where possible; without, the reference does."""

    def label(self, category: str, name: str) -> Label:
        """Return the meaning of a category and (clean) name. Called once for each distinct pair."""
        return Label(schema.OTHER)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        """Return the label of one event, if its arguments change the meaning of its name."""
        return label

    def keeps(self, event: ChromeEvent) -> bool:
        """Return False for events that describe the recording rather than the run. The dialect may note their
        content."""
        return True

    def clean_name(self, name: str) -> str:
        """Return the name without parts that differ between equal calls."""
        return name

    def thread(self, tid: Any) -> int | None:
        """Return the operating system thread from the ``tid`` field of a host event."""
        return integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        """Return the value of the device column for a device or memory event."""
        index = integer(pid if args.get("device") is None else args["device"])
        return f"{label.backend or schema.CPU}:{0 if index is None else index}" if label.backend else schema.CPU

    def communicates(self, name: str, kind: str) -> bool:
        """Return whether events of this name and kind may be collectives, to be :meth:`described` one by one."""
        return False

    def described(
        self, name: str, args: str | None, shapes: str | None, dtypes: str | None
    ) -> tuple[Collective | None, int]:
        """Return the collective of an event, from its cells, and the bytes of its message, -1 if unknown."""
        return None, -1


SCAN_FROM_BYTES: Final = 4 << 20
"""Bytes that one process reads by the reference before loading the compiled code pays off."""


def integer(value: Any) -> int | None:
    """Return a JSON number or a string of digits as an int, None for other values."""
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
