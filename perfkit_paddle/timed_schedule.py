"""``make_scheduler``, which takes the place of ``paddle.profiler.make_scheduler`` and also times the steps."""

from __future__ import annotations

from typing import Any

from perfkit_core.recording.step_clock import Action, StepClock, TimedSchedule
from perfkit_paddle import framework


def make_scheduler(*, closed: int, ready: int, record: int, repeat: int = 0, skip_first: int = 0) -> TimedSchedule[Any]:
    """Return a scheduler for ``paddle.profiler.Profiler``, with the arguments of ``paddle.profiler.make_scheduler``.

    The scheduler also times each step. :func:`perfkit_paddle.trace_handler` stores the times of the steps that are not
    recorded. They show what a step takes without the profiler, so the training should go on for some steps after the
    last recorded step. Timing takes about 10 µs per step.
    """
    profiling = framework.profiler()
    native = profiling.make_scheduler(closed=closed, ready=ready, record=record, repeat=repeat, skip_first=skip_first)
    states = profiling.ProfilerState
    return TimedSchedule(native, {states.CLOSED: Action.OFF, states.READY: Action.WARM_UP})


def clock(profiler: object) -> StepClock | None:
    """Return the clock of the scheduler that the profiler has, or None if it is another scheduler."""
    found = getattr(profiler, "scheduler", None)
    return found.clock if isinstance(found, TimedSchedule) else None
