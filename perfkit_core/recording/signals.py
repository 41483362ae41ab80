"""What ends a recording early: SIGTERM, and a profiler that the recorded script starts itself.

SIGTERM: Python's default ends the process at once, which loses the running cycle and all that is not written. While
that default is set, perfkit ends the process as ``sys.exit(143)`` would: ``with`` blocks are left, the profiler hands
over its cycle, and everything is written. A profiler's own method runs to its end first: torch would crash if its
``with`` block stopped the profiler in the middle of it. A second SIGTERM ends the process at once. A handler that the
script has set is never replaced, and forked children have the default again.

A second profiler: a process can have only one. Ours ends before the script's begins, which then runs as without us.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.recording import background

EXIT_CODE: Final = 128 + signal.SIGTERM
"""What a shell reports of a process that SIGTERM ended."""


class _Termination:
    """The handler of SIGTERM."""

    def __init__(self) -> None:
        self._held = 0  # blocks of the main thread, where Python runs handlers
        self._asked = False
        self._profilers: set[type] = set()  # that have handed over a cycle

    def __call__(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._asked = True
        if not self._held:
            self._end(frame)

    @contextlib.contextmanager
    def held(self, profiler: object) -> Iterator[None]:
        """Complete and write what begins in the block; the process ends once the profiler's method has returned."""
        main = threading.current_thread() is threading.main_thread()
        self._profilers.add(type(profiler))
        self._held += main
        try:
            yield
        finally:
            self._held -= main
            if main and self._asked and not self._held:
                background.shared().flush()  # whatever the profiler does when it is stopped
                self._end(sys._getframe())

    def _end(self, frame: FrameType | None) -> None:
        """Exit now, or when the profiler's method returns that the training called. ``frame`` is the innermost one."""
        method = None
        while frame is not None:
            if "self" in frame.f_locals and type(frame.f_locals["self"]) in self._profilers:
                method = frame
            frame = frame.f_back
        if method is None:
            self._exit()
            return
        before = sys.gettrace()

        # what a trace function raises is raised in the frame's caller
        def traced(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return":
                sys.settrace(before)
                self._exit()
            return traced

        method.f_trace = traced
        sys.settrace(lambda frame, event, arg: None)  # a debugger's or coverage tool's would not call the frame's own

    def _exit(self) -> None:
        if self._asked:
            self._asked = False
            raise SystemExit(EXIT_CODE)

    def restore(self) -> None:
        """Set the default again, where the handler is ours."""
        self._asked = False
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@functools.cache
def _shared() -> _Termination:
    termination = _Termination()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=termination.restore)
    return termination


def install() -> None:
    """End by SystemExit at SIGTERM from now on, where Python's default is set. Does nothing outside the main thread."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # another interpreter's main thread
            signal.signal(signal.SIGTERM, _shared())


def held(profiler: object) -> contextlib.AbstractContextManager[None]:
    """Return a ``with`` block in which SIGTERM, where :func:`install` was called, waits for the end of the block, and
    of the method of ``profiler`` that runs it."""
    return _shared().held(profiler)


class GivingWay:
    """Calls ``end`` once, before the method ``name`` of another profiler runs; ``profiler`` is the class of both. The
    own profiler must have run that method already, and ``end`` must not raise."""

    def __init__(self, profiler: type, name: str, end: Callable[[], None]) -> None:
        original = vars(profiler)[name]
        self._gave_way = False

        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            self._gave_way = True
            end()
            self.over()
            return original(*args, **kwargs)

        self._undo: Callable[[], None] | None = functools.partial(setattr, profiler, name, original)
        setattr(profiler, name, begin)

    def over(self) -> None:
        """Give the class its method back. A second call does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def check(self) -> None:
        """Raises CaptureError where there was another profiler."""
        if self._gave_way:
            raise CaptureError(
                "the script started a profiler of its own, and a process can have only one: recording ended there",
                "run it with python and pass perfkit's trace_handler as on_trace_ready",
            )
