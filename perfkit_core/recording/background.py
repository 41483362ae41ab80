"""The single thread of a process that finishes and writes cycles during the training.

It exists only while there is work, as an idle thread would appear in the Python stacks of the next recording. It is not
a daemon: a process that ends, including a child of ``multiprocessing``, waits for it. Cycles hold their events in
memory, so the training waits while LIMIT cycles are unwritten; none is dropped.
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
"""Maximum number of cycles that are taken but not written."""

FORK_SECONDS: Final = 60.0
"""Maximum wait of a fork for the thread: a child forked while it computes could inherit held locks."""


class Background:
    """Queue of jobs that run one after another. A job must not raise."""

    forked_ns: int | None = None
    """Time of the fork in ns since 1970 if this process was forked from one that had this object, else None."""

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
        """Queue ``work``, which writes into ``folder``; wait while there are LIMIT jobs. An interrupt during the wait
        is raised after the job was added. While the process ends, or if no thread can be started, the work runs before
        this returns."""
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
        """Start the thread; if the system has none left, take the last job back and return False."""
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
            del work  # free the events of the cycle
            with self._changed:
                self._jobs.popleft()
                self._changed.notify_all()
                if not self._jobs:
                    self._thread = None
                    return

    def flush(self, folder: Path | None = None, timeout: float | None = None) -> bool:
        """Wait until no job of ``folder``, or of a folder above or below it, is left (None: any); False after
        ``timeout`` s."""
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
    """Return the thread of this process; a forked child gets its own, without the parent's jobs."""
    background = Background()
    atexit.register(_end_by_interrupt)
    atexit.register(background.flush)
    with contextlib.suppress(RuntimeError):  # the process is ending: jobs run in the foreground then
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
    """End the process by SIGINT if KeyboardInterrupt ended the program, so that its parent sees the signal. Python does
    so itself, unless it executes module text after the interrupt, for example an import in the thread
    (``dataclasses``)."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
