"""Reading of trace files, plain or compressed with gzip, through a sliding window."""

from __future__ import annotations

import codecs
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from isal import igzip_lib, isal_zlib

from perfkit_core.base.system import machine
from perfkit_core.base.system.paths import open_binary
from perfkit_core.errors import SourceError

CHUNK_BYTES = 1 << 20
_PIECE_BYTES: Final = 16 << 20
_GZIP_ONLY: Final = 31
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
"""Bytes with which some editors begin a text in UTF-8."""
UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
DAMAGED: Final = (EOFError, OSError, zlib.error, cast("type[Exception]", igzip_lib.IsalError))
"""Errors that are raised while a damaged or truncated gzip file is read."""


class Gunzip(io.RawIOBase):
    """Decompresses gzip with isal. It first returns all data before a damaged place, and then raises one of DAMAGED.
    isal's own reader does not return this data."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._damage: Exception | None = None
        self._pending = b""
        self._member: Any = None

    def read(self, count: int = -1) -> bytes:
        """Return ``count`` bytes, or fewer at the end of the file or before a damaged place. A negative ``count`` means
        all bytes. In this case, a damaged place raises immediately."""
        pieces: list[bytes] = []
        size = 0
        for piece in self._pieces(count):
            pieces.append(piece)
            size += len(piece)
            machine.require(size, "unpacked data")  # the pieces are joined to a second copy
        return b"".join(pieces)

    def _pieces(self, count: int) -> Iterator[bytes]:
        """Yield the data of :meth:`read`, piece by piece."""
        if self._damage:
            raise self._damage
        size = 0
        try:
            while size != count and (
                piece := self._piece(min(count - size, _PIECE_BYTES) if count > 0 else CHUNK_BYTES)
            ):
                size += len(piece)
                yield piece
        except DAMAGED as error:
            if not size or count < 0:
                raise
            self._damage = error

    def _piece(self, count: int) -> bytes:
        while True:
            if not self._pending and not self._member:
                self._pending = self._file.read(CHUNK_BYTES // 4)
                if not self._pending:
                    return b""
            self._member = self._member or isal_zlib.decompressobj(wbits=_GZIP_ONLY)
            piece: bytes = self._member.decompress(self._pending, count)
            self._pending = self._member.unconsumed_tail
            if self._member.eof:  # another gzip member, or zero bytes as padding, may follow
                self._pending = self._member.unused_data.lstrip(b"\0")
                self._member = None
            if piece:
                return piece
            if self._member and not self._pending:  # isal has no more output for the input so far
                self._pending = self._file.read(CHUNK_BYTES // 4)
                if not self._pending:
                    raise EOFError("the file ends before the end-of-stream marker")

    def readinto(self, room: Any) -> int:
        size = 0
        for piece in self._pieces(len(room)):
            room[size : size + len(piece)] = piece
            size += len(piece)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed if it begins like a gzip file. Raises SourceError."""
    try:
        file = open_binary(path)
        compressed = file.peek(2)[:2] == GZIP_MAGIC
        return cast("BinaryIO", Gunzip(file)) if compressed else file
    except OSError as error:
        raise SourceError(f"{path}: cannot be opened ({error.strerror})", "check the path") from None


def head(path: Path, count: int = 4096) -> bytes:
    """Return the first ``count`` decompressed bytes, or fewer if the file is shorter. Return b"" if it is damaged. A
    byte order mark is left out."""
    try:
        with open_bytes(path) as file:
            return file.read(count).removeprefix(BYTE_ORDER_MARK)
    except DAMAGED:
        return b""


class Window:
    """A buffer that slides over a file."""

    def __init__(self, path: Path, sparing: bool = False) -> None:
        self.path = path
        self.sparing = sparing  # whether code that reads through this window should save memory
        self.data = b""  # bytes that have been read and not yet dropped
        self.base = 0  # offset of ``data`` in the decompressed file
        self.finished = False  # whether the end of the file has been reached
        self.damage = ""  # describes the damage that ends the compressed data; "" if there is none
        self._read = 0
        self._file = open_bytes(path)

    def more(self, count: int = CHUNK_BYTES) -> bool:
        """Read up to ``count`` more bytes. Return False at the end of the file or at a damaged place."""
        if self.finished:
            return False
        machine.require(len(self.data) + 2 * min(count, CHUNK_BYTES), f"a part of {self.path.name}")
        try:
            piece = self._file.read(count)  # readinto would need a buffer of ``count`` bytes even for a short file
        except DAMAGED as error:
            piece = self._end_at(error)
        self.finished = not piece
        self._read += len(piece)
        self.data += piece
        return bool(piece)

    def read_into(self, room: memoryview) -> int:
        """Read the next bytes of the file into ``room``. Return their number, or 0 at the end or at a damaged place."""
        if self.finished:
            return 0
        try:
            count = self._file.readinto(room)  # type: ignore[attr-defined]
        except DAMAGED as error:
            count = len(self._end_at(error))
        self.finished = not count
        self._read += count
        return int(count)

    def _end_at(self, damage: Exception) -> bytes:
        self.damage = f"damaged or truncated gzip data after byte {self._read} ({damage})"
        return b""

    def drop(self, count: int) -> None:
        self.data = self.data[count:]
        self.base += count

    def close(self) -> None:
        self._file.close()
