"""A place in a file that is read through a window, and what to say when it cannot be read from there."""

from __future__ import annotations

import re
from pathlib import Path

from perfkit_core.errors import SourceError
from perfkit_core.sources.bytestream import Window


class Cursor:
    """``position`` is that of the next byte in ``window.data``."""

    def __init__(self, path: Path, sparing: bool = False) -> None:
        self.path = path
        self.window = Window(path, sparing)
        self.position = 0

    @property
    def offset(self) -> int:
        """Of the next byte, in the (decompressed) file."""
        return self.window.base + self.position

    def skip(self, pattern: re.Pattern[bytes]) -> None:
        """Go behind what the pattern matches, reading on as needed."""
        while True:
            match = pattern.match(self.window.data, self.position)
            if match:
                self.position = match.end()
            if self.position < len(self.window.data) or not self.window.more():
                return

    def peek(self) -> bytes:
        """The next byte, none at the end."""
        return self.window.data[self.position : self.position + 1]

    def drop(self) -> None:
        """Forget what lies behind."""
        self.window.drop(self.position)
        self.position = 0

    def broken(self, what: str) -> SourceError:
        """The error that the file is damaged here."""
        self.whole()
        return SourceError(
            f"{self.path}: {what} (byte {self.offset})",
            "the file is truncated or damaged: record it again, or read what is there with --partial",
        )

    def whole(self) -> None:
        """Raise SourceError where compressed data is damaged: whatever else is missing, that is why."""
        if self.window.damage:
            hint = "copy or record the file again, or read what is there with --partial"
            raise SourceError(f"{self.path}: {self.window.damage}", hint)
