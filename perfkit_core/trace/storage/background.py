"""The thread that writes recorded cycles while the training continues. A process has at most one such thread.

The thread exists only while there is work, because an idle thread would appear in the Python stacks of the next
recording. It is not a daemon thread, so a process ends only after its cycles are written. Unwritten cycles are kept in
memory. If there are LIMIT unwritten cycles, the training waits. No cycle is dropped."""

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
"""Maximum number of unwritten cycles."""

FORK_SECONDS: Final = 60.0
"""Longest time that a fork waits for the thread. If a child is forked while the thread works, it may inherit locks that
are never released."""


class Background:
    """Queue of jobs that one background thread runs, one after another. A job must not raise."""

    forked_ns: int | None = None
    """Time of the fork that created this process, in ns since 1970. None if this process is not a forked child."""

    def __init__(self) -> None:
        self._reset()

    def forget(self) -> None:
        """Drop all jobs in a forked child, because the parent process runs them."""
        self._reset()
        self.forked_ns = time.time_ns()

    def _reset(self) -> None:
        self.ended = 0  # number of jobs
        self._changed = threading.Condition()
        self._jobs: deque[tuple[Path, Callable[[], None]]] = deque()  # the first job is running
        self._thread: threading.Thread | None = None

    def submit(self, folder: Path, work: Callable[[], None]) -> None:
        """Queue ``work``, which writes into ``folder``. If there are already LIMIT jobs, first wait for one to end. An
        interrupt during this wait is raised after ``work`` is queued. If no thread can be started, for example because
        the process is ending, ``work`` runs in the calling thread."""
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
        """Start the thread. If the system cannot start one, remove the last job from the queue and return False."""
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
                self.ended += 1  # before the queue is empty: others read both without the lock
                self._jobs.popleft()
                self._changed.notify_all()
                if not self._jobs:
                    self._thread = None
                    return

    def flush(self, folder: Path | None = None, timeout: float | None = None) -> bool:
        """Wait for the end of all jobs that write into ``folder``, or into a folder above or below it. If ``folder`` is
        None, wait for all jobs. Return False if ``timeout`` seconds were not enough."""
        if threading.current_thread() is self._thread:
            return True
        target = None if folder is None else folder.absolute()

        def related(path: Path) -> bool:
            return target is None or target in (path, *path.parents) or path in target.parents

        with self._changed:
            return self._changed.wait_for(lambda: not any(related(path) for path, _ in self._jobs), timeout)

    @property
    def idle_since(self) -> int | None:
        """The number of jobs that have ended, None while a job runs or waits."""
        return None if self._jobs else self.ended


@functools.cache
def shared() -> Background:
    """Return the queue of this process. A forked child begins with an empty queue."""
    background = Background()
    atexit.register(_end_by_interrupt)
    atexit.register(background.flush)
    with contextlib.suppress(RuntimeError):  # raised if the process is ending; submit() then runs the jobs itself
        import concurrent.futures.thread  # noqa: F401

        # Drivers of remote stores use threads of concurrent.futures, which ends them at the exit of the process. Exit
        # functions run in reverse order. flush is registered after the import, so it runs before the threads end.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(background.flush)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lambda: background.flush(timeout=FORK_SECONDS), after_in_child=background.forget)
    return background


def idle_since() -> int | None:
    """Return a number that stays equal while the thread of this process has nothing to do, None while it works. Unlike
    :func:`shared`, this makes no queue."""
    return shared().idle_since if shared.cache_info().currsize else 0


def _end_by_interrupt() -> None:
    """If KeyboardInterrupt ended the program, end the process by SIGINT, so that the parent process sees the signal.
    Python itself does not do this if a module was imported after the interrupt. The writer thread imports modules."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
