"""How does a line get to the end of a file to which any number of processes append? Whole, whatever the others do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def append_line(path: Path, line: bytes) -> None:
    """Add a line at the end of the file, which is made with its folders where it is not there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        with _locked(file):
            os.write(file, line + b"\n" if _ends_whole(file) else b"\n" + line + b"\n")
    finally:
        os.close(file)


@contextlib.contextmanager
def _locked(file: int) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # Windows: a single write is all there is
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _ends_whole(file: int) -> bool:
    """Whether the last line is complete: a process that died while writing must not spoil the next record."""
    size = os.lseek(file, 0, os.SEEK_END)
    if not size:
        return True
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"
