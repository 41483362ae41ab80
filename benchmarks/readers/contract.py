"""The interface of a measured reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

COLUMNS = ("name", "cat", "ph", "ts", "dur", "pid", "tid", "args")
"""The columns that a reader should return for each event. If a reader leaves some out, its ``does`` says so."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a reader: the number of rows, the size of the result in memory or on disk, and the result."""

    rows: int
    bytes: int
    result: Any = None


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of trace files.

    ``read(file, folder)`` reads ``file`` and may write into the empty ``folder``. The modules in ``modules`` are
    imported before the measurement. ``does`` describes the result in one line. A reader that is ``slow`` does not read
    a second time in the same process. Files larger than ``most_mb`` are skipped, because the reader would need too much
    memory.
    """

    name: str
    kind: Literal["perfkit", "peer", "floor"]
    does: str
    modules: tuple[str, ...]
    read: Callable[[Path, Path], Outcome]
    slow: bool = False
    most_mb: int | None = None
