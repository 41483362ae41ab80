"""The bytes of a trace file, plain or gzip, through one window that never holds the whole file."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO, Final, cast

from isal import igzip, igzip_lib

from perfkit_core.errors import SourceError

CHUNK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
DAMAGED: Final = (EOFError, OSError, zlib.error, cast("type[Exception]", igzip_lib.IsalError))
"""What reading a damaged or truncated gzip file may raise."""


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, through isal when it starts like gzip. Raises SourceError when it cannot be opened."""
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == GZIP_MAGIC
        return cast("BinaryIO", igzip.open(path, "rb")) if compressed else path.open("rb")
    except OSError as error:
        raise SourceError(f"{path}: cannot be opened ({error.strerror})", "check the path") from None


def head(path: Path, count: int = 4096) -> bytes:
    """The first decompressed bytes, for recognising a format; fewer when the file is short, empty when damaged."""
    try:
        with open_bytes(path) as file:
            return file.read(count)
    except DAMAGED:
        return b""


class Window:
    """A growing and sliding buffer over a file.

    ``data`` holds what was read and not yet dropped, ``base`` the file offset (decompressed) of its first byte,
    ``finished`` whether the file has ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = b""
        self.base = 0
        self.finished = False
        self._file = open_bytes(path)

    def more(self, count: int = CHUNK_BYTES) -> bool:
        """Read up to ``count`` further bytes; False at the end. Raises SourceError for damaged gzip data."""
        if self.finished:
            return False
        try:
            piece = self._file.read(count)
        except DAMAGED as error:
            where = self.base + len(self.data)
            raise SourceError(
                f"{self.path}: damaged or truncated gzip data after byte {where} ({error})",
                "copy or record the file again, or read what is there with --partial",
            ) from None
        self.finished = not piece
        self.data += piece
        return bool(piece)

    def drop(self, count: int) -> None:
        """Forget the first ``count`` bytes."""
        self.data = self.data[count:]
        self.base += count

    def close(self) -> None:
        self._file.close()
