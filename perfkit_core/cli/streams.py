"""What a process has in place of an output that was closed before it began (``>&-``, ``2>&-``): Python has nothing."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any


class _Nowhere(io.RawIOBase):
    """Takes what is written, and remembers that it was."""

    lost = False

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.lost = True
        return len(piece)


_nowhere = _Nowhere()


def open_all() -> None:
    """Give the process both outputs. Files that it opens later do not get their numbers, to which libraries write."""
    if sys.stdout is not None and sys.stderr is not None:
        return
    while os.open(os.devnull, os.O_RDWR) < 2:
        pass
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_nowhere), encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (as long as the process)


def flush() -> None:
    """Write what is still held. Raises OSError where that fails, and where standard output was closed all the time."""
    sys.stdout.flush()
    if _nowhere.lost:
        raise OSError(errno.EBADF, "it is closed, and nothing was shown", "standard output")
