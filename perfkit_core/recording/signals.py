"""Signals, and two events that end a recording early: SIGTERM, and a profiler that the recorded script starts.

With Python's default handler, SIGTERM would lose the running cycle and all unwritten cycles. perfkit therefore replaces
the default handler, but never a handler that the script has set.

perfkit's handler ends the process like ``sys.exit(143)``: ``with`` blocks are left, the profiler delivers its cycle,
and all cycles are written. A running method of the profiler is completed first, because interrupting it crashes torch.
A second SIGTERM ends the process immediately. Forked children have Python's default handler.

A process can have only one profiler. If the script starts a profiler, perfkit's profiler therefore ends first.

SIGUSR2 asks handlers with ``on_demand=True`` to record. A handler of SIGUSR2 that the script has set is called, too.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from perfkit_core.errors import CaptureError
from perfkit_core.storage import background
from perfkit_core.system import failures

EXIT_CODE: Final = 128 + signal.SIGTERM
"""Exit status that a shell reports after SIGTERM."""


class _Termination:
    def __init__(self) -> None:
        self._held = 0  # number of open held() blocks in the main thread (Python runs signal handlers only there)
        self._asked = False
        self._profilers: set[type] = set()  # classes of profilers that have delivered a cycle

    def __call__(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._asked = True
        if not self._held:
            self._end(frame)

    @contextlib.contextmanager
    def held(self, profiler: object) -> Iterator[None]:
        """If SIGTERM arrives in the ``with`` block, delay it until the running method of ``profiler`` returns."""
        main = threading.current_thread() is threading.main_thread()
        self._profilers.add(type(profiler))
        self._held += main
        try:
            yield
        finally:
            self._held -= main
            if main and self._asked and not self._held:
                background.shared().flush()  # the profiler may fail when it stops, so write first
                self._end(sys._getframe())

    def _end(self, frame: FrameType | None) -> None:
        """End the process now, or after the running method of a profiler. If such methods are nested, the outermost one
        is completed. ``frame`` is the innermost frame of the stack."""
        method = None
        while frame is not None:
            if "self" in frame.f_locals and type(frame.f_locals["self"]) in self._profilers:
                method = frame
            frame = frame.f_back
        if method is None:
            self._exit()
            return
        before = sys.gettrace()

        # If a trace function raises, Python raises the exception in the caller of the traced frame.
        def traced(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return":
                sys.settrace(before)
                self._exit()
            return traced

        method.f_trace = traced
        sys.settrace(lambda frame, event, arg: None)  # f_trace is called only while sys has a trace function, too

    def _exit(self) -> None:
        if self._asked:
            self._asked = False
            raise SystemExit(EXIT_CODE)

    def restore(self) -> None:
        """Restore Python's default handler if the current handler is perfkit's."""
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
    """Replace Python's default handler of SIGTERM. Do nothing outside the main thread, or if another handler is set."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # raised in the main thread of a subinterpreter
            signal.signal(signal.SIGTERM, shared())


class _Capture:
    """Handler of SIGUSR2. ``previous`` is the handler that it replaces."""

    def __init__(self, previous: Any) -> None:
        self.asked: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for method in tuple(self.asked):
            ask = method()
            if ask is not None:
                ask()
        if callable(self._previous):
            self._previous(number, frame)


def on_capture(ask: Callable[[], None]) -> None:
    """Call the method ``ask`` at each SIGUSR2, as long as its object lives. The present handler of the signal is called
    afterwards. Outside the main thread, Python sets no handler: log a warning, unless perfkit's is already set."""
    number = getattr(signal, "SIGUSR2", None)
    current = None if number is None else signal.getsignal(number)
    if number is None or current is None:  # a handler that was not set by Python
        return
    handler = current if isinstance(current, _Capture) else _Capture(current)
    handler.asked = [method for method in handler.asked if method() is not None] + [weakref.WeakMethod(ask)]
    if handler is not current:
        try:
            signal.signal(number, handler)
        except ValueError:  # raised in other threads, and in subinterpreters
            _tell_unset()


@functools.cache  # once per process
def _tell_unset() -> None:
    text = "SIGUSR2 records nothing, because the handler with on_demand=True was made outside the main thread"
    failures.tell(f"{text}: use perfkit capture", logging.WARNING)


class OtherProfilerPatch:
    """Ends perfkit's recording when the script starts a profiler of its own. The method ``name`` of the class
    ``profiler`` is replaced. The replacement calls ``end``, which must not raise, and then the original method.
    Create the object after perfkit's own profiler has called the method, so that this call does not run ``end``."""

    def __init__(self, profiler: type, name: str, end: Callable[[], None]) -> None:
        original = vars(profiler)[name]
        self.started = False

        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            self.started = True
            end()
            self.restore()
            return original(*args, **kwargs)

        begin._perfkit = True  # type: ignore[attr-defined]
        self._undo: Callable[[], None] | None = functools.partial(setattr, profiler, name, original)
        setattr(profiler, name, begin)

    @staticmethod
    def active(profiler: type, name: str) -> bool:
        """Return whether a recording of perfkit would be ended by a call of the method."""
        return hasattr(vars(profiler)[name], "_perfkit")

    def restore(self) -> None:
        """Restore the original method. A second call does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def check_section(self) -> None:
        """Raise CaptureError if the recorded section of a test has called the patched method."""
        if self.started:
            problem = "the section started a profiler of its own, which ended the recording"
            raise CaptureError(problem, "a process can have only one: remove it from the test")

    def check(self) -> None:
        """Raise CaptureError if another profiler has called the patched method."""
        if self.started:
            raise CaptureError(
                "recording ended when the script started its own profiler, because a process can have only one",
                "run the script with python, and pass perfkit's trace_handler to its profiler as on_trace_ready",
            )
