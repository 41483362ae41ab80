"""The one thread of a process that finishes and writes cycles while the training goes on.

It lives only while there is work: a waiting thread would appear in the Python stacks of the next recording. It is not a
daemon, so a process that ends, and a child of ``multiprocessing``, waits for it. At most LIMIT cycles are unwritten,
because each holds its events in memory; the training waits before it adds another, and none is dropped.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

LIMIT: Final = 2
"""Most cycles that are taken and not yet written."""

FORK_SECONDS: Final = 60.0
"""How long a fork waits for the thread: a child forked while it computes could find its locks held for ever."""


class Background:
    """Runs jobs one after the other. A job must not raise."""

    forked_ns: int | None = None
    """When this process was forked from one that had this object, in ns since 1970; None where it was not."""

    def __init__(self) -> None:
        self._reset()

    def forget(self) -> None:
        """Drop all jobs in a forked child: they are the parent's."""
        self._reset()
        self.forked_ns = time.time_ns()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Path, Callable[[], None]]] = deque()  # the first one is running
        self._thread: threading.Thread | None = None

    def submit(self, folder: Path, work: Callable[[], None]) -> None:
        """Run ``work``, which writes into ``folder``; waits while there are LIMIT jobs.

        An interrupt during that wait is raised after the job was added. While the process ends, and where no thread can
        be started, the work is done before this returns.
        """
        started = threading.main_thread().is_alive()
        if started:
            with self._changed:
                try:
                    self._changed.wait_for(lambda: len(self._jobs) < LIMIT)
                finally:
                    self._jobs.append((folder.absolute(), work))
                    started = self._thread is not None or self._start()
        if not started:
            self.flush()
            work()

    def _start(self) -> bool:
        """Start the thread; where the system has none left, take the last job back and return False."""
        self._thread = threading.Thread(target=self._run, name="perfkit-writer", daemon=False)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            self._jobs.pop()
        return self._thread is not None

    def _run(self) -> None:
        while True:
            _, work = self._jobs[0]
            work()
            del work  # holds the events of a cycle
            with self._changed:
                self._jobs.popleft()
                self._changed.notify_all()
                if not self._jobs:
                    self._thread = None
                    return

    def flush(self, folder: Path | None = None, timeout: float | None = None) -> bool:
        """Wait until no job of ``folder``, below it or above it is left (None: of any); False after ``timeout`` s."""
        if threading.current_thread() is self._thread:
            return True
        wanted = None if folder is None else folder.absolute()
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    not any(
                        wanted is None or wanted in (place, *place.parents) or place in wanted.parents
                        for place, _ in self._jobs
                    )
                ),
                timeout,
            )


@functools.cache
def shared() -> Background:
    """Return the thread of this process; a forked child gets one of its own, without the parent's jobs."""
    background = Background()
    atexit.register(_end_by_interrupt)
    atexit.register(background.flush)
    with contextlib.suppress(RuntimeError):  # the process is ending already: nothing is done in the background then
        # Drivers of stores write with asyncio, which looks up names in threads of concurrent.futures. These end before
        # atexit runs, by this private function; what was registered last, here after its own, is called first.
        import concurrent.futures.thread  # noqa: F401

        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(background.flush)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lambda: background.flush(timeout=FORK_SECONDS), after_in_child=background.forget)
    return background


def _end_by_interrupt() -> None:
    """End a program that an interrupt ended by that signal, for whoever started it to see.

    Python does so by itself, unless it runs the text of a module after the interrupt, as where the thread imports
    one (``dataclasses``).
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
