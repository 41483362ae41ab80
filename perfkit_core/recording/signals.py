"""Signals, and two events that end a recording early: a signal that ends the process, and a profiler that the recorded
script starts.

With the default handlers, SIGTERM and SIGHUP would lose the running cycle and all unwritten cycles, and SIGINT (Ctrl-C)
would interrupt the profiler, which crashes torch. perfkit therefore replaces the default handlers, but never a handler
that the script has set, and never an ignored signal (``nohup``).

- A running method of the profiler is completed first.
- SIGINT then raises KeyboardInterrupt, as Python does. A second SIGINT is not delayed.
- SIGTERM and SIGHUP then end the process like ``sys.exit(143)`` and ``sys.exit(129)``: ``with`` blocks are left, the
  profiler delivers its cycle, and all cycles are written. A second one ends the process immediately. Python ignores an
  exception in a destructor, for example of a file. If the training continues, the next step that a StepClock times
  raises it again.
- Forked children have the default handlers.

While a cycle is taken, the handlers of the script are delayed, too: their exceptions are for the training.

A process can have only one profiler. If the script starts a profiler, perfkit's profiler therefore ends first.

SIGUSR2 asks handlers with ``on_demand=True`` to record. A handler of SIGUSR2 that the script has set is called, too."""

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

from perfkit_core.base.system import failures
from perfkit_core.errors import CaptureError
from perfkit_core.trace.storage import background

_SHELL_BASE: Final = 128
"""A shell reports the exit status 128 + N after signal N."""

_ENDING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

_Handler = Callable[[int, FrameType | None], Any]


class Delay:
    """Delays signals until a cycle is taken, and until the running method of a profiler returns. It is also the handler
    of SIGINT, SIGTERM and SIGHUP."""

    def __init__(self) -> None:
        self._open_blocks = 0  # open delayed() blocks of the main thread (Python runs signal handlers only there)
        self._pending: list[tuple[int, _Handler]] = []
        self._replaced: dict[int, _Later] = {}
        self._profilers: set[type] = set()
        self._tracing = False
        self.ended = 0
        """The first signal that ends the process, 0 if there was none."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.arrived(number, signal.default_int_handler, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        if not self.ended:  # SIGHUP often follows SIGTERM; the first one sets the exit status
            self.ended = number
            self.arrived(number, _exit, frame)

    def arrived(self, number: int, handler: _Handler, frame: FrameType | None) -> None:
        """Run the handler of a signal as soon as nothing delays it. ``frame`` is the innermost frame of the stack."""
        second = any(number == signal.SIGINT == other for other, _ in self._pending)
        self._pending.append((number, handler))
        if second:
            self._deliver(frame)
        elif not self._open_blocks:
            self._deliver_after_method(frame)

    def end_again(self) -> None:
        """End the process if a signal should have ended it before: the training continues."""
        if self.ended and not self._pending and threading.current_thread() is threading.main_thread():
            self.arrived(self.ended, _exit, sys._getframe())

    def protect(self, profiler: type) -> None:
        """Complete running methods of this class before a signal is handled."""
        self._profilers.add(profiler)

    @contextlib.contextmanager
    def delayed(self, script: bool = False) -> Iterator[None]:
        """Delay signals that end the process until the end of the ``with`` block, or until the running method of a
        profiler returns. If ``script`` is set, also delay the script's own handlers of signals. They may raise, for
        example when a process of a data loader dies, and the block may suppress errors."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._open_blocks += 1
        try:
            if script:
                self._replace()
            yield
        finally:
            self._open_blocks -= 1
            if not self._open_blocks:
                if any(number == signal.SIGINT or number in _ENDING for number, _ in self._pending):
                    background.shared().flush()  # the profiler may fail when it stops, so write first
                self._deliver_after_method(sys._getframe())

    def _deliver_after_method(self, frame: FrameType | None) -> None:
        """Deliver the signals now, or after the running method of a profiler. If such methods are nested, the outermost
        one is completed."""
        if self._tracing:
            return
        method = self._method(frame) if self._pending else None
        if method is None:
            self._restore()
            self._deliver(frame)
            return
        before = sys.gettrace()

        # If a trace function raises, Python raises the exception in the caller of the traced frame.
        def traced(frame: FrameType, event: str, arg: Any) -> Any:
            if event == "return":
                sys.settrace(before)
                self._tracing = False
                self._restore()
                self._deliver(frame)
            return traced

        self._tracing = True
        method.f_trace = traced
        sys.settrace(lambda frame, event, arg: None)  # f_trace is called only while sys has a trace function, too

    def _method(self, frame: FrameType | None) -> FrameType | None:
        method = None
        while frame is not None:
            if "self" in frame.f_locals and not self._profilers.isdisjoint(type(frame.f_locals["self"]).__mro__):
                method = frame
            frame = frame.f_back
        return method

    def _deliver(self, frame: FrameType | None) -> None:
        pending, self._pending = self._pending, []
        with contextlib.ExitStack() as stack:  # all are handled, even if the first one raises
            for number, handler in reversed(pending):
                stack.callback(handler, number, frame)

    def _replace(self) -> None:
        for number in signal.valid_signals() - self._replaced.keys():
            handler = signal.getsignal(number)
            if callable(handler) and handler is not self:
                self._replaced[number] = _Later(handler)
                with contextlib.suppress(ValueError):  # raised in the main thread of a subinterpreter
                    signal.signal(number, self._replaced[number])

    def _restore(self) -> None:
        while self._replaced:
            number, later = self._replaced.popitem()
            current: Any = signal.getsignal(number)
            if current is later:  # the block may have set another handler
                signal.signal(number, later.handler)

    def restore(self) -> None:
        """Restore the handlers that a process has by default, and those of the script."""
        self._pending, self.ended = [], 0
        self._restore()
        for number in (signal.SIGINT, *_ENDING):
            if signal.getsignal(number) is self:
                signal.signal(number, _default(number))


class _Later:
    """Handler that delays a handler of the script."""

    def __init__(self, handler: _Handler) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        shared().arrived(number, self.handler, frame)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(_SHELL_BASE + number)


def end_by_signal(code: int) -> None:
    """End the process by the signal that made it end with this exit code, as without perfkit. Call this when everything
    is written: what runs at the end of a process is left out."""
    number = shared().ended
    if number and code == _SHELL_BASE + number:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _default(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


@functools.cache
def shared() -> Delay:
    delay = Delay()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=delay.restore)
    return delay


def install() -> None:
    """Replace the default handlers of SIGINT, SIGTERM and SIGHUP. Do nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGINT, *_ENDING):
        if signal.getsignal(number) is _default(number):
            with contextlib.suppress(ValueError):  # raised in the main thread of a subinterpreter
                signal.signal(number, shared())


@contextlib.contextmanager
def guarded(failure: str) -> Iterator[None]:
    """Log errors in the ``with`` block instead of raising them, and delay signals that end the process. ``failure``
    says what failed. Errors that a signal handler of the script raised are raised."""
    with shared().delayed():
        try:
            yield
        except Exception as error:
            if failures.raised_by_signal(error):
                raise
            failures.log(failure, error)


class _CaptureSignal:
    """Handler of SIGUSR2. ``previous`` is the handler that it replaces."""

    def __init__(self, previous: Any) -> None:
        self.methods: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for method in tuple(self.methods):
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
    handler = current if isinstance(current, _CaptureSignal) else _CaptureSignal(current)
    handler.methods = [method for method in handler.methods if method() is not None] + [weakref.WeakMethod(ask)]
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
    ``end`` returns False if perfkit's own profiler calls the method. Create the object after perfkit's own profiler has
    called it, or take care of this call, too."""

    def __init__(self, profiler: type, name: str, end: Callable[[], bool | None]) -> None:
        original = vars(profiler)[name]
        self.started = False

        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            if end() is not False:
                self.started = True
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
