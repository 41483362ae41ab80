"""Scans a file in several threads, ahead of the consumer, with proof that no event is read twice or left out. Chunks
are cut where an event seems to begin. A chunk that was scanned from the beginning of an event to its end, a comma and
white space, proves that the next chunk begins with an event. At the first chunk that is not read to its end the
reference takes over, and later chunks are discarded."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

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
"""Python handles each chunk under its lock, so with small chunks other threads wait."""
SPARING_BYTES: Final = 1 << 19
"""Size of a chunk if memory matters more than time."""
_TAIL_BYTES: Final = (1 << 12, 1 << 16)
_LONGEST: Final = 16
"""Factor by which a chunk without a likely end grows before it is left to the reference."""
_FIRST_KEY: Final = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*")')


@dataclass(slots=True)
class Chunk:
    """``buffer[:size]`` holds the file's bytes from ``offset`` on, to its end if ``last``; PAD zero bytes follow."""

    buffer: npt.NDArray[np.uint8]
    size: int
    offset: int
    last: bool

    def rest(self, position: int) -> bytes:
        return self.buffer[position : self.size].tobytes()


class Chunks:
    """Iterator over the chunks of a window and the rest of its file, with reused buffers."""

    def __init__(self, window: Window) -> None:
        """``window.data`` begins with an event; it is removed from the window until :meth:`stop`."""
        self._window, self._size = window, min(SPARING_BYTES, CHUNK_BYTES) if window.sparing else CHUNK_BYTES
        self._carried, self.offset = window.data, window.base
        window.data = b""
        self._free: list[npt.NDArray[np.uint8]] = []
        first = _FIRST_KEY.match(self._carried)
        self._end = re.compile(rb"\}\s*,\s*(?=\{\s*" + re.escape(first[1]) + rb")") if first else None

    def give_back(self, chunk: Chunk) -> None:
        self._free.append(chunk.buffer)

    def stop(self, unread: bytes, offset: int) -> None:
        """Restore the window to ``unread``, which begins at ``offset`` of the file and ends at the last cut."""
        self._window.data, self._window.base = unread + self._carried, offset
        self._carried = b""

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        wanted = self._size
        while self._end is not None:
            buffer, held = self._filled(wanted)
            if not held:
                break
            last = self._window.finished and not self._carried
            size = held if last else self._last_beginning(self._end, buffer, held)
            if size or wanted >= _LONGEST * self._size:
                size = size or held
                self._carried = buffer[size:held].tobytes() + self._carried
                buffer[size : size + PAD] = 0
                chunk = Chunk(buffer, size, self.offset, last)
                self.offset += size
                return chunk
            self._carried, wanted = buffer[:held].tobytes() + self._carried, 2 * wanted
        raise StopIteration

    def _filled(self, wanted: int) -> tuple[npt.NDArray[np.uint8], int]:
        buffer = np.empty(0, np.uint8)
        while self._free and len(buffer) < wanted + PAD:
            buffer = self._free.pop()
        if len(buffer) < wanted + PAD:
            buffer = allocate(max(wanted, self._size) + PAD, np.uint8)
        held = min(len(self._carried), wanted)
        buffer[:held] = np.frombuffer(self._carried, np.uint8, held)
        self._carried = self._carried[held:]
        while held < wanted and (count := self._window.read_into(buffer[held:wanted].data)):
            held += count
        return buffer, held

    @staticmethod
    def _last_beginning(end: re.Pattern[bytes], buffer: npt.NDArray[np.uint8], held: int) -> int:
        """Return where the last event seems to begin, 0 if none does."""
        for count in (*_TAIL_BYTES, held):
            start = max(held - count, 0)
            ends = [match.end() for match in end.finditer(buffer[start:held].tobytes())]
            if ends:
                return start + ends[-1]
        return 0


_WAITING, _WAITING_SPARING = 3, 1
"""Chunks queued besides those being scanned, as a thread without work sleeps and wakes late."""


class ScanAhead:
    """Reads the events of one file up to what the scanner cannot read."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._threads = parallel.threads()
        self._idle: SimpleQueue[Scanner] = SimpleQueue()

    def portions(self, window: Window) -> Iterator[Portion]:
        """Yield events from the beginning of the window. Afterwards the window begins with what was not read."""
        chunks = Chunks(window)
        most = self._threads + (_WAITING_SPARING if window.sparing else _WAITING)
        waiting: deque[tuple[Chunk, Future[Scanned]]] = deque()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="perfkit-scan") as pool:
            while True:
                for chunk in itertools.islice(chunks, most - len(waiting)):
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
        except Empty:  # at most one scanner for each thread
            scanner = Scanner(self._dialect)
        try:
            return scanner.scan(chunk.buffer, 0, chunk.size + chunk.last)  # no event begins after the last comma
        finally:
            self._idle.put(scanner)


def accepted(scanned: Scanned) -> tuple[Portion, Scanned]:
    """Return what was scanned, with its slow events decoded; cut off before one that is not JSON."""
    stretches: list[Stretch] = []
    slow: list[list[ChromeEvent]] = []
    for stretch in scanned.stretches:
        texts = [text for _, _, text in stretch.slow]
        try:
            slow.append(DECODER.decode(b"[" + b",".join(texts) + b"]"))
        except UNDECODABLE:
            slow.append([])
            for number, (row, position, text) in enumerate(stretch.slow):
                try:
                    slow[-1] += DECODER.decode(b"[" + text + b"]")
                except UNDECODABLE:
                    stretches.append(stretch.first(row, number))
                    return Portion(tuple(stretches), tuple(slow)), Scanned(events.BROKEN, position, ())
        stretches.append(stretch)
    return Portion(tuple(stretches), tuple(slow)), scanned
