"""The one thread of a process that finishes and writes cycles while the training goes on.

It lives only while there is work: a thread that waits would be in the Python stacks of the next recording. It is no
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIMIT: Final = 2
"""Cycles taken and not yet written."""

FORK_SECONDS: Final = 60.0
"""How long a fork waits for the thread: a child forked while it computes could find its locks held for ever."""


@dataclass(frozen=True, slots=True)
class _Job:
    folder: Path
    work: Callable[[], None]


class Background:
    """Works off jobs one after the other. ``work`` must not raise."""

    forked_ns: int | None = None
    """When this process was forked from one that had this object, in ns since 1970; None where it was not."""

    def __init__(self) -> None:
        self._begin()

    def forget(self) -> None:
        """Begin anew, as a forked child does: the jobs are the parent's."""
        self._begin()
        self.forked_ns = time.time_ns()

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()  # the first one is running
        self._thread: threading.Thread | None = None

    def submit(self, folder: Path, work: Callable[[], None]) -> None:
        """Do ``work``, which writes into ``folder``; waits while there are LIMIT jobs.

        An interrupt during that wait is raised after the job was added. While the process ends, and where no thread can
        be started, the work is done before this returns.
        """
        if not (threading.main_thread().is_alive() and self._add(_Job(folder.absolute(), work))):
            self.flush()
            work()

    def flush(self, folder: Path | None = None, timeout: float | None = None) -> bool:
        """Wait until no job of ``folder`` (or below or above it; None: of any) is left; False after ``timeout`` s."""
        if threading.current_thread() is self._thread:
            return True
        wanted = None if folder is None else folder.absolute()
        with self._changed:
            return self._changed.wait_for(lambda: not any(_concerns(job, wanted) for job in self._jobs), timeout)

    def _add(self, job: _Job) -> bool:
        with self._changed:
            try:
                self._changed.wait_for(lambda: len(self._jobs) < LIMIT)
            finally:
                self._jobs.append(job)
                started = self._thread is not None or self._start()
                if not started:
                    self._jobs.pop()
            return started

    def _start(self) -> bool:
        self._thread = threading.Thread(target=self._run, name="perfkit-writer", daemon=False)
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left
            self._thread = None
        return self._thread is not None

    def _run(self) -> None:
        job = self._next(done=False)
        while job is not None:
            job.work()
            job = self._next(done=True)

    def _next(self, done: bool) -> _Job | None:
        with self._changed:
            if done:
                self._jobs.popleft()
            if not self._jobs:
                self._thread = None
            self._changed.notify_all()
            return self._jobs[0] if self._jobs else None


def _concerns(job: _Job, folder: Path | None) -> bool:
    return folder is None or job.folder == folder or folder in job.folder.parents or job.folder in folder.parents


@functools.cache
def shared() -> Background:
    """The thread of this process; a forked child begins with one of its own, without the parent's jobs."""
    made = Background()
    atexit.register(_interrupted_still)
    atexit.register(made.flush)
    with contextlib.suppress(RuntimeError):  # the process is ending already: nothing is done in the background then
        _before_executors_end(made.flush)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lambda: made.flush(timeout=FORK_SECONDS), after_in_child=made.forget)
    return made


def _before_executors_end(action: Callable[[], object]) -> None:
    """Call at the end of the process, while asyncio can still look up names: drivers of stores need it to write.

    ``atexit`` is too late for that. The private function is that of ``concurrent.futures``; what it imports first is
    called last.
    """
    import concurrent.futures.thread  # noqa: F401

    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(action)


def _interrupted_still() -> None:
    """A program that an interrupt ended ends by that signal, unless Python runs the text of some module after it, as it
    does where the thread imports one (``dataclasses``). Whoever started the program is to see the signal."""
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not hasattr(sys, "ps1"):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
