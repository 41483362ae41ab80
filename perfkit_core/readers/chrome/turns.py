"""Whose turn is it: the scanner's, or the reference's?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from perfkit_core.readers.chrome.dialect import Dialect
from perfkit_core.storage.bytestream import Window

if TYPE_CHECKING:
    from perfkit_core.readers.chrome.portion import Portion
    from perfkit_core.readers.scanner.chunks import ScanAhead

SCAN_FROM_BYTES: Final = 4 << 20
"""What the reference reads in one process, in one file or several, before it is worth to load the compiled code."""
_LOADED_FROM_BYTES: Final = 1 << 16
"""Smaller files are left to the reference even then."""
_WORTH_BYTES: Final = 16 << 20
_MOST_BATCHES: Final = 64


def can_scan(dialect: Dialect) -> bool:
    """Whether the dialect says all that the scanner has to know."""
    return dialect.scan_rules is not None and type(dialect).times is Dialect.times


class _Process:
    """What this process has read of files that were too small to load the compiled code for."""

    small_bytes = 0


class Turns:
    """After the scanner has given up, the reference reads a batch; twice as many whenever it gives up soon again."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._enough = min(max(SCAN_FROM_BYTES - _Process.small_bytes, _LOADED_FROM_BYTES), SCAN_FROM_BYTES)
        self._batches, self._patience = 0, 1
        self._ahead: ScanAhead | None = None

    def scan_next(self) -> bool:
        """Whether the scanner shall go on from here."""
        if self._ahead is None:
            while (missing := self._enough - len(self._window.data)) > 0 and self._window.more(missing):
                pass
            worth = missing <= 0
            if not worth:
                _Process.small_bytes += len(self._window.data)
            return worth
        self._batches -= 1
        return self._batches < 0

    def portions(self, dialect: Dialect) -> Iterator[Portion]:
        """What the scanner reads from the beginning of the window on."""
        from perfkit_core.readers.scanner.chunks import ScanAhead

        self._ahead = self._ahead or ScanAhead(dialect)
        begin = self._window.base
        yield from self._ahead.portions(self._window)
        far = self._window.base - begin >= _WORTH_BYTES
        self._patience = 1 if far else min(2 * self._patience, _MOST_BATCHES)
        self._batches = self._patience
