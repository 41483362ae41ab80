"""What the scanner hands to the recorder: stretches of rows, and the events that the reference has to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.readers.chrome.dialect import ChromeEvent, Label

ARGUMENT_INTEGERS: Final = (
    "correlation", "external", "stream", "sequence", "bytes", "address", "total_bytes", "flops",
)  # fmt: skip
ARGUMENT_TEXTS: Final = ("shapes", "dtypes", "stack", "module")
"""Columns that arguments may go to."""

NULL: Final = -(2**63)
"""An unknown integer. No recorded one is: 18 digits are the most that is read."""

START, DURATION, FIRST_INTEGER = 0, 1, 2
"""Rows of ``numbers``; the last one is the offset."""
ORIGIN, FIRST_TEXT = 0, 1
"""Rows of ``codes``."""


@dataclass(slots=True)
class Words:
    """What the numbers of one scanner mean. Lists grow as new numbers come up."""

    categories: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    tokens: list[Any] = field(default_factory=list)
    texts: list[Any] = field(default_factory=list)
    pairs: list[tuple[str, str, Label]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    origins: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Pair, token of the process and of the thread, place."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows as scanned: ``numbers[c]`` and ``codes[c]`` of shape (rows,), None where an optional column holds nothing.

    ``rest`` is the text of arguments without column, ``slow`` (row, position, text) of events that the reference has to
    read; ``recoded`` are the arguments of some rows in place of ``rest``. The codes are numbers of ``words``.
    """

    words: Words
    rows: int
    numbers: tuple[npt.NDArray[np.int64] | None, ...]
    codes: tuple[npt.NDArray[np.int32] | None, ...]
    rest: npt.NDArray[np.uint8]
    rest_ends: npt.NDArray[np.int32]
    slow: tuple[tuple[int, int, bytes], ...]
    recoded: dict[int, str]


@dataclass(frozen=True, slots=True)
class Portion:
    """Stretches of rows in the order of the file, and the events of each that the reference has to read."""

    stretches: tuple[Stretch, ...]
    slow: tuple[list[ChromeEvent], ...]
