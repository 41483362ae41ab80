"""Hooks on layers come and go with Paddle's profiler, so that a model has none while nothing records."""

from __future__ import annotations

import paddle
from paddle.profiler import Profiler, ProfilerState

from perfkit_core.layers.annotation import Active, install_all, uninstall_all

_RECORDS = (ProfilerState.RECORD, ProfilerState.RECORD_AND_RETURN)
_running: list[Profiler] = []
"""The profilers between start() and stop(): one, as a process can have only one."""


def recording() -> bool:
    """Whether a label would be recorded: not while the schedule waits, nor where a static graph is built."""
    return bool(_running) and _running[-1].current_state in _RECORDS and paddle.in_dynamic_mode()


def watch(active: Active) -> None:
    """Install hooks whenever a profiler starts."""
    if hasattr(Profiler, "_perfkit_original"):
        return
    originals = (Profiler.start, Profiler.stop)

    def start(profiler: Profiler) -> None:
        originals[0](profiler)
        if not profiler.timer_only:
            _running.append(profiler)
            install_all(active)

    def stop(profiler: Profiler) -> None:
        try:
            originals[1](profiler)
        finally:
            _running.clear()
            uninstall_all(active)

    Profiler._perfkit_original = originals
    Profiler.start, Profiler.stop = start, stop


def unwatch(active: Active) -> None:
    """Give Paddle its methods back once nothing is annotated."""
    if not active and hasattr(Profiler, "_perfkit_original"):
        Profiler.start, Profiler.stop = Profiler._perfkit_original
        del Profiler._perfkit_original
