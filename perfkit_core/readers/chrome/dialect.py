"""Base class of dialects. A dialect is the part of a Chrome-trace reader that an adapter provides. It assigns kinds,
phases and devices to recorded events, for files and for live captures alike."""

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
    """One event as the reference reader decodes it. ``ts`` and ``dur`` remain text, so that no digit is lost."""

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
    """Return two values: the indexes of the events with valid times, and the :func:`event_times` of these events.
    Unless ``partial`` is set, an invalid time raises SourceError."""
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
    """Return the starts and the durations in ns, each of shape (events,). If an event has no start, its start is 0.
    Raises SourceError for an invalid time; the error names the event."""
    starts, durations = [bytes(event.ts) or None for event in events], [bytes(event.dur) for event in events]

    def place(field: str, at: int) -> str:
        return f" ({field} of the event {str(events[at].name)[:80]!r})"

    return to_ns(starts, place=partial(place, "ts")), to_ns(durations, place=partial(place, "dur"))


_DIGITS: Final = re.compile(r"-?\d{1,18}")


class Label(NamedTuple):
    """The meaning of an event's category and name. ``phase`` applies to the event and all its descendants. ``step`` is
    the number of a step. ``backend`` is the device type, or None for the host. ``layer`` is the part that the event
    appends to the module path of the enclosing event."""

    kind: str
    phase: str | None = None
    step: int | None = None
    backend: str | None = None
    copy_kind: str | None = None
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class ScanRules:
    """Properties of an adapter's files that let the scanner read events without calling the dialect for each event.

    If a dialect has rules, the results of its ``label`` and ``device`` must depend only on their arguments. Its
    ``keeps`` and ``refine`` may affect only the following events, because the scanner leaves these events to the
    reference reader:

    - events for which ``needs_reference(category, name)`` is true;
    - if ``glued_durations`` is set: spans whose name does not end with their duration;
    - events that have some of the arguments ``dropped_if_empty``, unless all these arguments are present and empty;
    - events in which an argument of ``not_negative`` is negative.

    The scanner ignores the arguments ``dropped``, and the arguments ``dropped_if_empty`` if all are present and empty.
    ``device`` may use only the ``device_arguments``, of which there are at most three. ``offset_argument`` names the
    argument for the column ``offset_ns``; its value is a text such as ``"12.345 us"``.
    """

    needs_reference: Callable[[str, str], bool] | None = None
    glued_durations: bool = False
    dropped: frozenset[str] = frozenset()
    dropped_if_empty: frozenset[str] = frozenset()
    not_negative: frozenset[str] = frozenset()
    device_arguments: tuple[str, ...] = ()
    offset_argument: str | None = None


class Dialect:
    """Base class of dialects. Each instance reads one file. Subclasses override the methods that differ."""

    framework: ClassVar[str] = ""
    arguments: ClassVar[Mapping[str, str]] = {}
    """Maps arguments of events to columns, or to ``external``: an id that an operator shares with its launches."""
    scan_rules: ClassVar[ScanRules | None] = None
    """If set, the scanner reads files and live captures where possible. If None, the reference reader reads them."""

    def label(self, category: str, name: str) -> Label:
        """Return the meaning of a category and a name from :meth:`clean_name`. Called once for each distinct pair."""
        return Label(schema.OTHER)

    def refine(self, label: Label, args: Mapping[str, Any]) -> Label:
        """Return the label of one event, if its arguments change the meaning of its name."""
        return label

    def keeps(self, event: ChromeEvent) -> bool:
        """Return False if the event describes the recording instead of the run. The dialect may store its content."""
        return True

    def clean_name(self, name: str) -> str:
        """Return the name without the parts that differ between calls of the same function."""
        return name

    def thread(self, tid: Any) -> int | None:
        """Return the operating system's thread id from the ``tid`` field of a host event, or None if there is none."""
        return integer(tid)

    def device(self, label: Label, pid: Any, args: Mapping[str, Any]) -> str:
        """Return the value of the device column for a device or memory event."""
        index = integer(pid if args.get("device") is None else args["device"])
        return f"{label.backend or schema.CPU}:{0 if index is None else index}" if label.backend else schema.CPU

    def communicates(self, name: str, kind: str) -> bool:
        """Return whether events of this name and kind may be collectives. Only these are passed to
        :meth:`described`."""
        return False

    def described(
        self, name: str, args: str | None, shapes: str | None, dtypes: str | None
    ) -> tuple[Collective | None, int]:
        """Return two values: the collective that an event belongs to (None if none), and the size of its message in
        bytes (-1 if unknown). The arguments are the event's values in the columns with these names."""
        return None, -1


SCAN_FROM_BYTES: Final = 4 << 20
"""Number of bytes that a process must read before loading the scanner's compiled code pays off."""


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
