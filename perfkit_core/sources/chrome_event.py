"""One event of a Chrome trace as the reference decodes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from perfkit_core.errors import SourceError
from perfkit_core.sources.decimals import to_ns
from perfkit_core.trace import IntArray


class ChromeEvent(msgspec.Struct, gc=False):
    """One event as written. ``ts`` and ``dur`` stay text, so that no digit is lost; without ``ts`` it is empty."""

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
"""What decoding raises for text that is not JSON, or nested too deep."""


Times = Callable[[Sequence[ChromeEvent]], tuple[IntArray, IntArray]]
"""Start and duration of events in ns, each of shape (events,). Raises SourceError."""


def is_timed(event: ChromeEvent, times: Times) -> bool:
    """Whether the times of an event can be read."""
    try:
        times([event])
    except SourceError:
        return False
    return True


def event_times(events: Sequence[ChromeEvent]) -> tuple[IntArray, IntArray]:
    """Start (0 where there is none) and duration in ns, each of shape (events,). Raises SourceError, which names the
    event."""
    starts, durations = [bytes(one.ts) or None for one in events], [bytes(one.dur) for one in events]

    def place(field: str, at: int) -> str:
        return f" ({field} of the event {str(events[at].name)[:80]!r})"

    return to_ns(starts, place=partial(place, "ts")), to_ns(durations, place=partial(place, "dur"))
