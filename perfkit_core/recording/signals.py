"""What happens to a recording when its process is told to end (SIGTERM)?

Python's default is to end at once, which loses the running cycle and all that is not written. While that default is
set, perfkit ends the process as ``sys.exit(143)`` would: ``with`` blocks are left, the profiler hands over its cycle,
and everything is written. A profiler's own method is not left in the middle: torch would be stopped by its ``with``
block while it does not run, and crash. A second SIGTERM ends the process at once. A handler that the script has set is
never replaced, and forked children have the default again.

A script that is being recorded starts a profiler of its own. A process has room for one: ours ends before the
script's begins, which then finds what it would have found without us.
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
    """Our handler of SIGTERM."""

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
        """What begins in here is completed and written; the process ends once the profiler's method has returned."""
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
        """``frame`` is the innermost one."""
        method = self._method(frame)
        if method is None:
            self._exit()
        else:
            _on_return(method, self._exit)

    def _method(self, frame: FrameType | None) -> FrameType | None:
        """The outermost frame that is a method of a profiler: the one that the training called."""
        found = None
        while frame is not None:
            if "self" in frame.f_locals and type(frame.f_locals["self"]) in self._profilers:
                found = frame
            frame = frame.f_back
        return found

    def _exit(self) -> None:
        if self._asked:
            self._asked = False
            raise SystemExit(EXIT_CODE)

    def restore(self) -> None:
        """The default again, where the handler is ours."""
        self._asked = False
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@functools.cache
def _shared() -> _Termination:
    made = _Termination()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made.restore)
    return made


def install() -> None:
    """End by SystemExit at SIGTERM from now on, where Python's default is set. Does nothing outside the main thread."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # another interpreter's main thread
            signal.signal(signal.SIGTERM, _shared())


def held(profiler: object) -> contextlib.AbstractContextManager[None]:
    """A ``with`` block in which SIGTERM, where :func:`install` was called, waits for the end of the block, and of the
    method of ``profiler`` that it is run by."""
    return _shared().held(profiler)


def _on_return(frame: FrameType, action: Callable[[], None]) -> None:
    """Call ``action`` when a running frame returns. What it raises is raised in the frame's caller."""
    before = sys.gettrace()

    def traced(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "return":
            sys.settrace(before)
            action()
        return traced

    frame.f_trace = traced
    sys.settrace(lambda frame, event, arg: None)  # of a debugger or a coverage tool: would not ask the frame's own


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

        self._undo: Callable[[], None] = functools.partial(setattr, profiler, name, original)
        setattr(profiler, name, begin)

    def over(self) -> None:
        """Give the class its method back: nothing is left that would be in the way. A second call does nothing."""
        undo, self._undo = self._undo, _nothing
        undo()

    def check(self) -> None:
        """Raises CaptureError where there was another profiler."""
        if self._gave_way:
            raise CaptureError(
                "the script started a profiler of its own, and a process can have only one: recording ended there",
                "run it with python and pass perfkit's trace_handler as on_trace_ready",
            )


def _nothing() -> None:
    """Has been undone."""
