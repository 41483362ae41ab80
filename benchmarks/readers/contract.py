"""The interface of a measured reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

COLUMNS = ("name", "cat", "ph", "ts", "dur", "pid", "tid", "args")
"""Each reader should return these columns of an event. If some are missing, ``does`` of the reader says so."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reader returned: the number of rows, the size in memory or on disk, and the result itself."""

    rows: int
    bytes: int
    result: Any = None


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of trace files.

    - ``read(file, folder)`` reads ``file`` and may write into the empty ``folder``.
    - ``modules``: modules to import before the measurement.
    - ``does``: what the reader does, in one line.
    - ``slow``: whether to leave out the second read in the same process.
    - ``most_mb``: larger files are skipped, because the reader would need too much memory.
    """

    name: str
    kind: Literal["perfkit", "peer", "floor"]
    does: str
    modules: tuple[str, ...]
    read: Callable[[Path, Path], Outcome]
    slow: bool = False
    most_mb: int | None = None
