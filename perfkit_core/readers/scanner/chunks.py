"""Scans a file in several threads, ahead of who takes the events, and proves that nothing was read twice or left out.

Chunks are cut where an event seems to begin. A chunk that was scanned from the beginning of an event to its last byte,
which is a comma and white space, proves that the next one begins with an event. The first chunk that is not read to its
end is where the reference takes over; what was scanned behind it is forgotten.

A file in chunks that end, in all likelihood, between two events, so that several can be scanned at once.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from perfkit_core.algorithms.arrays import allocate
from perfkit_core.readers.chrome.dialect import DECODER, UNDECODABLE, ChromeEvent, Dialect
from perfkit_core.readers.chrome.scanned_rows import Portion, Stretch
from perfkit_core.readers.scanner import events
from perfkit_core.readers.scanner.scanner import Scanned, Scanner
from perfkit_core.readers.scanner.tokens import PAD
from perfkit_core.runtime import parallel
from perfkit_core.storage.bytestream import Window

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
        return allocate(max(size, self._size + PAD), np.uint8)

    def _cut(self, buffer: npt.NDArray[np.uint8], held: int) -> int:
        """Where the last event begins, as far as it shows; 0 where it does not."""
        assert self._end is not None
        for count in (*_TAIL_BYTES, held):
            start = max(held - count, 0)
            ends = [match.end() for match in self._end.finditer(buffer[start:held].tobytes())]
            if ends:
                return start + ends[-1]
        return 0


_WAITING, _WAITING_SPARING = 3, 1
"""Chunks beside those that are being scanned: a thread that finds none sleeps, and wakes late."""


class ScanAhead:
    """Reads the events of one file, as far as they are usual."""

    def __init__(self, dialect: Dialect, threads: int | None = None) -> None:
        self._dialect = dialect
        self._threads = threads or parallel.threads()
        self._idle: SimpleQueue[Scanner] = SimpleQueue()

    def portions(self, window: Window) -> Iterator[Portion]:
        """Events from the beginning of the window on. At the end the window begins with what was not read."""
        chunks = Chunks(window)
        most = self._threads + (_WAITING_SPARING if window.sparing else _WAITING)
        coming = iter(chunks)
        waiting: deque[tuple[Chunk, Future[Scanned]]] = deque()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="perfkit-scan") as pool:
            while True:
                for chunk in itertools.islice(coming, most - len(waiting)):
                    waiting.append((chunk, pool.submit(self._scan, chunk)))
                if not waiting:
                    chunks.stop(b"", chunks.offset)
                    return
                chunk, future = waiting.popleft()
                portion, scanned = accepted(future.result())
                if portion.stretches:
                    yield portion
                if scanned.status != events.CLEAN:
                    pool.shutdown(wait=True)
                    unread = [chunk.rest(scanned.position), *(other.rest(0) for other, _ in waiting)]
                    chunks.stop(b"".join(unread), chunk.offset + scanned.position)
                    return
                chunks.give_back(chunk)

    def _scan(self, chunk: Chunk) -> Scanned:
        try:
            scanner = self._idle.get_nowait()
        except Empty:  # as many as there are threads
            scanner = Scanner(self._dialect)
        try:
            return scanner.scan(chunk.buffer, 0, chunk.size + chunk.last)  # no event begins behind the last comma
        finally:
            self._idle.put(scanner)


def accepted(scanned: Scanned) -> tuple[Portion, Scanned]:
    """What was scanned, with its slow events decoded; cut off in front of one that is no JSON."""
    stretches, slow = [], []
    for stretch in scanned.stretches:
        decoded, broken = _decoded(stretch)
        slow.append(decoded)
        if broken is not None:
            row, position, _ = stretch.slow[broken]
            stretches.append(_cut(stretch, row, broken))
            return Portion(tuple(stretches), tuple(slow)), Scanned(events.BROKEN, position, ())
        stretches.append(stretch)
    return Portion(tuple(stretches), tuple(slow)), scanned


def _decoded(stretch: Stretch) -> tuple[list[ChromeEvent], int | None]:
    """The slow events of a stretch, and the number of the first that is no JSON."""
    texts = [text for _, _, text in stretch.slow]
    try:
        return DECODER.decode(b"[" + b",".join(texts) + b"]"), None
    except UNDECODABLE:
        pass
    found: list[ChromeEvent] = []
    for number, text in enumerate(texts):
        try:
            found += DECODER.decode(b"[" + text + b"]")
        except UNDECODABLE:
            return found, number
    return found, None


def _cut(stretch: Stretch, rows: int, slow: int) -> Stretch:
    ends = stretch.rest_ends[: rows + 1]
    return replace(
        stretch, rows=rows, numbers=_first(stretch.numbers, rows), codes=_first(stretch.codes, rows), rest_ends=ends,
        rest=stretch.rest[: ends[-1]], slow=stretch.slow[:slow],
        recoded={row: text for row, text in stretch.recoded.items() if row < rows},
    )  # fmt: skip


def _first(columns: tuple[Any, ...], rows: int) -> tuple[Any, ...]:
    return tuple(None if column is None else column[:rows] for column in columns)
