"""What an adapter says about its files, so that the scanner can read them without asking about each event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _never(category: str, name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ScanRules:
    """A dialect that has rules promises that its ``label`` and ``device`` depend on their arguments alone, and that
    ``keeps`` and ``refine`` change nothing but what is said here.

    ``needs_reference(category, name)``: events of this pair go through the dialect one by one (``keeps``, ``refine``).
    ``glued_durations``: every span's name ends with its duration, which ``clean_name`` takes off; a span without one
    goes through the dialect. ``dropped`` arguments are no arguments, nor are those of
    ``dropped_if_empty`` when an event has all of them and they hold nothing; otherwise it goes through the dialect, as
    does an event with a negative argument of ``not_negative``. ``device_arguments`` (at most three) are all that
    ``device`` looks at. ``offset_argument``: a start as text, ``"12.345 us"``, that becomes the column ``offset_ns``.
    """

    needs_reference: Callable[[str, str], bool] = _never
    glued_durations: bool = False
    dropped: frozenset[str] = frozenset()
    dropped_if_empty: frozenset[str] = frozenset()
    not_negative: frozenset[str] = frozenset()
    device_arguments: tuple[str, ...] = ()
    offset_argument: str | None = None
