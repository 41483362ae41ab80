"""Early ends of a recording: SIGTERM, and a profiler that the recorded script starts itself.

Python's default for SIGTERM loses the running cycle and all unwritten ones. While that default is set, perfkit ends the
process as ``sys.exit(143)`` does: ``with`` blocks are left, the profiler delivers its cycle, and everything is written.
A running method of the profiler completes first, as torch crashes if it is stopped in the middle of one. A second
SIGTERM ends the process at once. Handlers of the script are never replaced; forked children have the default.

A process can have only one profiler: perfkit's ends before the script's begins.
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
"""Exit status that a shell reports after SIGTERM."""


class _Termination:
    """The handler of SIGTERM."""

    def __init__(self) -> None:
        self._held = 0  # open blocks of the main thread, where Python runs handlers
        self._asked = False
        self._profilers: set[type] = set()  # classes that have delivered a cycle

    def __call__(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._asked = True
        if not self._held:
            self._end(frame)

    @contextlib.contextmanager
    def held(self, profiler: object) -> Iterator[None]:
        """Hold back a SIGTERM handled by :func:`install` during the block; then end the process once the method of
        ``profiler`` that contains it has returned."""
        main = threading.current_thread() is threading.main_thread()
        self._profilers.add(type(profiler))
        self._held += main
        try:
            yield
        finally:
            self._held -= main
            if main and self._asked and not self._held:
                background.shared().flush()  # write pending cycles first, as stopping the profiler may fail
                self._end(sys._getframe())

    def _end(self, frame: FrameType | None) -> None:
        """Exit now, or when the profiler's method on the stack returns; ``frame`` is the innermost frame."""
        method = None
        while frame is not None:
            if "self" in frame.f_locals and type(frame.f_locals["self"]) in self._profilers:
                method = frame
            frame = frame.f_back
        if method is None:
            self._exit()
            return
        before = sys.gettrace()

        # an exception of a trace function is raised in the frame's caller
        def traced(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return":
                sys.settrace(before)
                self._exit()
            return traced

        method.f_trace = traced
        sys.settrace(lambda frame, event, arg: None)  # the trace function of a debugger would not call f_trace

    def _exit(self) -> None:
        if self._asked:
            self._asked = False
            raise SystemExit(EXIT_CODE)

    def restore(self) -> None:
        """Restore Python's default if the handler is perfkit's."""
        self._asked = False
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@functools.cache
def shared() -> _Termination:
    termination = _Termination()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=termination.restore)
    return termination


def install() -> None:
    """Exit by SystemExit on SIGTERM if Python's default is set. Does nothing outside the main thread."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # another interpreter's main thread
            signal.signal(signal.SIGTERM, shared())


class GivingWay:
    """Patch that calls ``end`` once, before another profiler's method ``name`` runs; ``profiler`` is the class of both.
    perfkit's profiler must have run that method already, and ``end`` must not raise."""

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
        """Restore the method of the class. A second call does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def check(self) -> None:
        """Raise CaptureError if another profiler was started."""
        if self._gave_way:
            raise CaptureError(
                "the script started its own profiler, and a process can have only one: recording ended there",
                "run it with python and pass perfkit's trace_handler as on_trace_ready",
            )
