"""What a measured reader is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

COLUMNS = ("name", "cat", "ph", "ts", "dur", "pid", "tid", "args")
"""What every peer has to deliver of an event, as far as it can; ``does`` says where it cannot."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reader made: rows, the bytes that the result takes in memory or on disk, and the result itself."""

    rows: int
    bytes: int
    result: Any = None


@dataclass(frozen=True, slots=True)
class Reader:
    """One way of reading a trace file.

    ``read(file, folder)`` reads ``file`` and may write into the empty ``folder``. ``modules`` are imported before the
    clock starts. ``does`` says in one line what the time buys. ``slow`` ones are not read a second time in the same
    process. Files over ``most_mb`` are not given to it, because its memory would not suffice.
    """

    name: str
    kind: Literal["perfkit", "peer", "floor"]
    does: str
    modules: tuple[str, ...]
    read: Callable[[Path, Path], Outcome]
    slow: bool = False
    most_mb: int | None = None
