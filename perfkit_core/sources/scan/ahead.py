"""Scans a file in several threads, ahead of who takes the events, and proves that nothing was read twice or left out.

Chunks are cut where an event seems to begin. A chunk that was scanned from the beginning of an event to its last byte,
which is a comma and white space, proves that the next one begins with an event. The first chunk that is not read to its
end is where the reference takes over; what was scanned behind it is forgotten.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from perfkit_core import at_once
from perfkit_core.sources.bytestream import Window
from perfkit_core.sources.chrome_event import DECODER, UNDECODABLE, ChromeEvent
from perfkit_core.sources.dialect import Dialect
from perfkit_core.sources.portion import Portion, Stretch
from perfkit_core.sources.scan import events
from perfkit_core.sources.scan.chunks import Chunk, Chunks
from perfkit_core.sources.scan.scanner import Scanned, Scanner

_WAITING, _WAITING_SPARING = 3, 1
"""Chunks beside those that are being scanned: a thread that finds none sleeps, and wakes late."""


class ScanAhead:
    """Reads the events of one file, as far as they are usual."""

    def __init__(self, dialect: Dialect, threads: int | None = None) -> None:
        self._dialect = dialect
        self._threads = threads or at_once.threads()
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
