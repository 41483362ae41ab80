"""What happens to a recording when its process is told to end (SIGTERM)?

Python's default is to end at once, which loses the running cycle and all that is not written. While that default is
set, perfkit ends the process as ``sys.exit(143)`` would: ``with`` blocks are left, the profiler hands over its cycle,
and everything is written. A second SIGTERM ends the process at once. A handler that the script has set is never
replaced, and forked children have the default again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

EXIT_CODE: Final = 128 + signal.SIGTERM
"""What a shell reports of a process that SIGTERM ended."""


class _Termination:
    """Our handler of SIGTERM."""

    def __init__(self) -> None:
        self._held = 0  # blocks of the main thread, where Python runs handlers
        self._asked = False

    def __call__(self, number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._asked = True
        self._end()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What begins in here is completed; the process ends afterwards."""
        main = threading.current_thread() is threading.main_thread()
        self._held += main
        try:
            yield
        finally:
            self._held -= main
            if main:
                self._end()

    def _end(self) -> None:
        if self._asked and not self._held:
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


def held() -> contextlib.AbstractContextManager[None]:
    """A ``with`` block in which SIGTERM, where :func:`install` was called, waits for the end of the block."""
    return _shared().held()
