"""Scanning of a file in several threads. The file is cut into chunks at places where an event seems to begin.

A chunk is accepted if the scanner reads its events up to the comma at its end. The next chunk then begins with an
event, so no event is lost or read twice. If the scanner cannot read a chunk to its end, the slower reference
reader takes over there, and the next chunks are discarded.
"""

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

from perfkit_core.base.algorithms.arrays import allocate
from perfkit_core.base.runtime import parallel
from perfkit_core.base.system import machine
from perfkit_core.readers.chrome.dialect import DECODER, UNDECODABLE, ChromeEvent, Dialect, Label
from perfkit_core.readers.chrome.event_rows import Portion, Stretch
from perfkit_core.readers.scanner import events
from perfkit_core.readers.scanner.scanner import Scanned, Scanner
from perfkit_core.readers.scanner.tokens import PAD
from perfkit_core.trace.storage.bytestream import Window

CHUNK_BYTES: Final = 6 << 20
"""Size of a chunk. Threads need Python's lock between chunks, and would wait for each other if chunks were small."""
SPARING_BYTES: Final = 1 << 19
"""Size of a chunk if memory is more important than time."""
_TAIL_BYTES: Final = (1 << 12, 1 << 16)
_MAX_GROWTH: Final = 16
"""A chunk without the end of an event grows to at most this multiple of its size. If it still contains no end, the
slower reference reader reads the event."""
_USUAL_KEYS: Final = (b'"ph"', b'"name"')
"""With these, most events begin. In some files, not all events begin with the same key."""
_FIRST_KEY: Final = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*")')


@dataclass(slots=True)
class Chunk:
    buffer: npt.NDArray[np.uint8]  # the bytes of the chunk, followed by PAD zero bytes
    size: int  # number of bytes without the zero bytes
    offset: int  # offset of the chunk in the file
    last: bool  # whether the file ends with this chunk

    def rest(self, position: int) -> bytes:
        return self.buffer[position : self.size].tobytes()


class Chunks:
    """Iterator over the chunks of a file, from the beginning of the window. Buffers are reused."""

    def __init__(self, window: Window) -> None:
        """Take over the text of ``window``, which must begin with an event. :meth:`stop` gives unread text back."""
        self._window, self._size = window, min(SPARING_BYTES, CHUNK_BYTES) if window.sparing else CHUNK_BYTES
        self._carried, self.offset = window.data, window.base
        window.data = b""
        self._free: list[npt.NDArray[np.uint8]] = []
        first = _FIRST_KEY.match(self._carried)
        keys = b"|".join(map(re.escape, {first[1], *_USUAL_KEYS} if first else ()))
        self._end = re.compile(rb"\}\s*,\s*(?=\{\s*(?:" + keys + rb"))") if first else None

    def give_back(self, chunk: Chunk) -> None:
        self._free.append(chunk.buffer)

    def stop(self, unread: bytes, offset: int) -> None:
        """Give unread text back to the window. ``unread`` is the text from ``offset`` to the end of the last chunk."""
        self._window.data, self._window.base = unread + self._carried, offset
        self._carried = b""

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        target = self._size
        while self._end is not None:
            buffer, filled = self._filled(target)
            if not filled:
                break
            last = self._window.finished and not self._carried
            size = filled if last else self._last_beginning(self._end, buffer[:filled])
            blank = not size and not buffer[filled // 2 : filled].tobytes().strip()  # no larger chunk for blanks
            if size or blank or target >= _MAX_GROWTH * self._size:
                if not size:  # probably, the reference reader must continue here: do not read ahead
                    self._end, size = None, filled
                self._carried = buffer[size:filled].tobytes() + self._carried
                buffer[size : size + PAD] = 0
                chunk = Chunk(buffer, size, self.offset, last)
                self.offset += size
                return chunk
            self._carried, target = buffer[:filled].tobytes() + self._carried, 2 * target
        raise StopIteration

    def _filled(self, target: int) -> tuple[npt.NDArray[np.uint8], int]:
        buffer = np.empty(0, np.uint8)
        while self._free and len(buffer) < target + PAD:
            buffer = self._free.pop()
        if len(buffer) < target + PAD:
            machine.require(target, f"a part of {self._window.path.name}")
            buffer = allocate(max(target, self._size) + PAD, np.uint8)
        filled = min(len(self._carried), target)
        buffer[:filled] = np.frombuffer(self._carried, np.uint8, filled)
        self._carried = self._carried[filled:]
        while filled < target and (count := self._window.read_into(buffer[filled:target].data)):
            filled += count
        return buffer, filled

    @staticmethod
    def _last_beginning(end: re.Pattern[bytes], text: npt.NDArray[np.uint8]) -> int:
        """Return the position of the last place where an event seems to begin, 0 if there is none."""
        for count in (*_TAIL_BYTES, len(text)):
            start = max(len(text) - count, 0)
            ends = [match.end() for match in end.finditer(text[start:].tobytes())]
            if ends:
                return start + ends[-1]
        return 0


_WAITING, _WAITING_SPARING = 3, 1
"""Number of chunks kept ready, without and with ``sparing``. A thread without a chunk sleeps, and wakes up slowly."""


class ScanAhead:
    """Reads the events of a file in several threads, up to the first text that the scanner cannot read."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._threads = parallel.threads()
        self._idle: SimpleQueue[Scanner] = SimpleQueue()
        self._labelled: dict[tuple[str, str], tuple[Label, bool]] = {}

    def portions(self, window: Window) -> Iterator[Portion]:
        """Yield events in portions, up to the first text that cannot be read. The window then begins with this text."""
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
                    size = chunk.size + sum(other.size for other, _ in waiting)
                    machine.require(2 * size, f"a part of {window.path.name}")
                    unread = [chunk.rest(scanned.position), *(other.rest(0) for other, _ in waiting)]
                    chunks.stop(b"".join(unread), chunk.offset + scanned.position)
                    return
                chunks.give_back(chunk)

    def _scan(self, chunk: Chunk) -> Scanned:
        try:
            scanner = self._idle.get_nowait()
        except Empty:  # each thread creates at most one scanner
            scanner = Scanner(self._dialect, self._labelled)
        try:
            return scanner.scan(chunk.buffer, 0, chunk.size + chunk.last)  # the last chunk must end with "]"
        finally:
            self._idle.put(scanner)


def accepted(scanned: Scanned) -> tuple[Portion, Scanned]:
    """Decode the events that the scanner left to the slower reference reader. Return (all rows, ``scanned``). If
    such an event is not JSON, the rows end before it, and the second value has the status BROKEN."""
    stretches: list[Stretch] = []
    slow: list[list[ChromeEvent]] = []
    for stretch in scanned.stretches:
        texts = [event.text for event in stretch.slow]
        try:
            slow.append(DECODER.decode(b"[" + b",".join(texts) + b"]"))
        except UNDECODABLE:
            slow.append([])
            for number, event in enumerate(stretch.slow):
                try:
                    slow[-1] += DECODER.decode(b"[" + event.text + b"]")
                except UNDECODABLE:
                    stretches.append(stretch.before(number))
                    return Portion(tuple(stretches), tuple(slow)), Scanned(events.BROKEN, event.position, ())
        stretches.append(stretch)
    return Portion(tuple(stretches), tuple(slow)), scanned
