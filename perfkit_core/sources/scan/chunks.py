"""A file in chunks that end, in all likelihood, between two events, so that several can be scanned at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from perfkit_core import memory
from perfkit_core.sources.bytestream import Window
from perfkit_core.sources.scan.words import PAD

CHUNK_BYTES: Final = 6 << 20
"""Python does something for each chunk, in one thread at a time: small ones make the others wait."""
SPARING_BYTES: Final = 1 << 19
"""Where memory counts more than time."""
_TAIL_BYTES: Final = (1 << 12, 1 << 16)
_LONGEST: Final = 16
"""A chunk without a likely end grows to so many times its size before it is left to the reference."""
_FIRST_KEY: Final = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*")')


@dataclass(slots=True)
class Chunk:
    """``buffer[:size]`` holds the file's bytes from ``offset`` on, to its end if ``last``; PAD zero bytes follow."""

    buffer: npt.NDArray[np.uint8]
    size: int
    offset: int
    last: bool

    def rest(self, position: int) -> bytes:
        """The bytes from a position on."""
        return self.buffer[position : self.size].tobytes()


class Chunks:
    """Cuts a window and the file behind it. Buffers that are given back are used again."""

    def __init__(self, window: Window, chunk_bytes: int | None = None) -> None:
        """``window.data`` begins with an event; it is taken out until :meth:`stop`."""
        usual = min(SPARING_BYTES, CHUNK_BYTES) if window.sparing else CHUNK_BYTES
        self._window, self._size = window, chunk_bytes or usual
        self._carried, self._offset = window.data, window.base
        window.data = b""
        self._free: list[npt.NDArray[np.uint8]] = []
        found = _FIRST_KEY.match(self._carried)
        self._end = re.compile(rb"\}\s*,\s*(?=\{\s*" + re.escape(found[1]) + rb")") if found else None

    def __iter__(self) -> Iterator[Chunk]:
        while self._end is not None and (chunk := self._next()) is not None:
            yield chunk

    def give_back(self, chunk: Chunk) -> None:
        """Nobody reads this chunk any more."""
        self._free.append(chunk.buffer)

    def stop(self, unread: bytes, offset: int) -> None:
        """Leave the window at ``unread``, which begins at ``offset`` of the file and ends where the last cut was."""
        self._window.data, self._window.base = unread + self._carried, offset
        self._carried = b""

    @property
    def offset(self) -> int:
        """Where in the file the next chunk begins."""
        return self._offset

    def _next(self) -> Chunk | None:
        wanted = self._size
        while True:
            buffer, held = self._filled(wanted)
            if not held:
                return None
            last = self._window.finished and not self._carried
            size = held if last else self._cut(buffer, held)
            if size or wanted >= _LONGEST * self._size:
                break
            self._carried, wanted = buffer[:held].tobytes() + self._carried, 2 * wanted
        size = size or held
        self._carried = buffer[size:held].tobytes() + self._carried
        buffer[size : size + PAD] = 0
        chunk = Chunk(buffer, size, self._offset, last)
        self._offset += size
        return chunk

    def _filled(self, wanted: int) -> tuple[npt.NDArray[np.uint8], int]:
        buffer = self._buffer(wanted + PAD)
        held = min(len(self._carried), wanted)
        buffer[:held] = np.frombuffer(self._carried, np.uint8, held)
        self._carried = self._carried[held:]
        while held < wanted and (count := self._window.read_into(buffer[held:wanted].data)):
            held += count
        return buffer, held

    def _buffer(self, size: int) -> npt.NDArray[np.uint8]:
        while self._free:
            buffer = self._free.pop()
            if len(buffer) >= size:
                return buffer
        return memory.column(max(size, self._size + PAD), np.uint8)

    def _cut(self, buffer: npt.NDArray[np.uint8], held: int) -> int:
        """Where the last event begins, as far as it shows; 0 where it does not."""
        assert self._end is not None
        for count in (*_TAIL_BYTES, held):
            start = max(held - count, 0)
            ends = [match.end() for match in self._end.finditer(buffer[start:held].tobytes())]
            if ends:
                return start + ends[-1]
        return 0
