"""Profilers that a training leaves running. If an error ends the training between ``start()`` and ``stop()``, the open
cycle would be lost, and torch crashes when its profiler still records at the end of the process."""

from __future__ import annotations

import atexit
import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

from perfkit_core.recording import signals


def stop_at_exit(handler: Any, profiler: type, recording: Callable[[], bool]) -> None:
    """At the end of the process, stop the profilers of the class ``profiler`` that have this trace handler, if
    ``recording()`` says that one still records. They deliver their open cycle."""
    signals.shared().protect(profiler)
    reference, pid = weakref.ref(handler), os.getpid()

    def stop() -> None:
        if reference() is None or os.getpid() != pid or not recording():
            return
        for running in gc.get_objects():  # a handler does not know its profiler before the first cycle
            if issubclass(type(running), profiler) and running.on_trace_ready is reference():
                with signals.guarded(
                    "a profiler that was still running at the end could not be stopped: its last cycle is lost"
                ):
                    running.stop()

    atexit.register(stop)
