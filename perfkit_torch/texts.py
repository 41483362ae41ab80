"""Texts of live events, also where torch hands out bytes that are none.

torch keeps the names of some Python frames (of line 0) beyond the life of their functions: then they are whatever
lies in that memory now, and reading one raises UnicodeDecodeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def texts(read: Callable[[Any], str], events: Sequence[Any]) -> list[str]:
    """``read`` of each event."""
    try:
        return [*map(read, events)]
    except UnicodeDecodeError:
        return [text(read, event) for event in events]


def text(read: Callable[[Any], str], event: Any) -> str:
    """``read`` of one event, bytes that are no UTF-8 written as ``\\xe8``."""
    try:
        return read(event)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")
