"""A frame of a stack: what a label of the event table says about the place in the code."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PATTERNS: Final = (
    re.compile(r"(?P<file>[^()]+)\((?P<line>\d+)\): (?P<name>.+)", re.S),
    re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)', re.S),
    re.compile(r"(?P<file>[^():;]+\.py):(?P<line>\d+)(?::| in | )(?P<name>.+)", re.S),
)


class Frame(NamedTuple):
    """Function, file and line; ``text`` is how it was recorded. File and line are None where they are not known."""

    text: str
    name: str
    file: str | None = None
    line: int | None = None


def frame(text: str) -> Frame:
    """``train.py(12): step`` → step, train.py, 12; every other text is the name."""
    for pattern in _PATTERNS:
        match = pattern.fullmatch(text)
        if match:
            return Frame(text, match["name"], match["file"], int(match["line"]))
    return Frame(text, text)
