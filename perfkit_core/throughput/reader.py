"""How long does the loop wait for its next batch? Any iterable, timed at the place where the loop takes from it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from perfkit_core.throughput.log import StepLog

Batch = TypeVar("Batch")


class TimedReader(Generic[Batch]):
    """Yields what the loader yields, as often as it can be iterated; everything else about it is the loader's own.

    The waits count while the benchmark runs, on the thread that started it: what another thread reads ahead is no
    wait of the loop. A reader inside another one leaves the timing to the outer.
    """

    def __init__(self, log: StepLog, loader: Iterable[Batch]) -> None:
        self._log = log
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Batch]:
        if self._log.reading:
            return iter(self._loader)
        return self._timed()

    def _timed(self) -> Iterator[Batch]:
        log = self._log
        if not self._counts():
            yield from self._loader
            return
        clock, read = log.clock, log.read_ns.append
        iterator = self._opened()
        while True:
            log.reading = True
            start = clock()
            try:
                batch = next(iterator)
            except StopIteration:
                log.wait_without_batch(clock() - start)
                return
            finally:
                log.reading = False
            if log.running:
                read(clock() - start)
            yield batch

    def _opened(self) -> Iterator[Batch]:
        """The loader's iterator. Making it starts the workers, and the loop waits for that."""
        log = self._log
        start = log.clock()
        log.reading = True
        try:
            return iter(self._loader)
        finally:
            log.reading = False
            log.wait_without_batch(log.clock() - start)

    def _counts(self) -> bool:
        if self._log.thread in (None, threading.get_ident()):
            return True
        self._log.complain("the reader is iterated in another thread than the loop: its waits are not the loop's")
        return False
