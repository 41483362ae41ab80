"""``make_scheduler``, which takes the place of ``paddle.profiler.make_scheduler`` and also times the steps."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from perfkit_core.recording.step_clock import Action, StepClock, TimedSchedule
from perfkit_paddle import framework


def make_scheduler(*, closed: int, ready: int, record: int, repeat: int = 0, skip_first: int = 0) -> TimedSchedule[Any]:
    """Return a scheduler for ``paddle.profiler.Profiler``, with the arguments of ``paddle.profiler.make_scheduler``.

    The scheduler also times each step. :func:`perfkit_paddle.trace_handler` stores the times of the steps that are not
    recorded. They show what a step takes without the profiler, so the training should run for some steps before the
    first recorded step. Timing takes about 10 µs per step.

    From its start to its end, Paddle's Profiler makes each layer and operator create events, even while it is closed. A
    closed step would thus be up to a third longer than a step without a Profiler. The scheduler turns this off.
    """
    profiling = framework.profiler()
    native = profiling.make_scheduler(closed=closed, ready=ready, record=record, repeat=repeat, skip_first=skip_first)
    states = profiling.ProfilerState

    def schedule(step: int) -> Any:
        state = native(step)
        _make_events(profiling, sys._getframe(2).f_locals.get("self"), state is not states.CLOSED)
        return state

    return TimedSchedule(schedule, {states.CLOSED: Action.OFF, states.READY: Action.WARM_UP})


def _make_events(profiling: Any, profiler: Any, on: bool) -> None:
    """Turn Paddle's creation of events on or off. ``profiler`` is the Profiler that calls the schedule, if known."""
    with contextlib.suppress(AttributeError):  # names in other versions of Paddle
        if profiling.utils._is_profiler_used is not on:
            profiling.utils._is_profiler_used = on
            if profiler.record_shapes or profiler.with_flops:
                inner = profiling.profiler
                (inner.enable_op_info_recorder if on else inner.disable_op_info_recorder)()


def clock(profiler: object) -> StepClock | None:
    """Return the clock of the scheduler that the profiler has, or None if it is another scheduler."""
    found = getattr(profiler, "scheduler", None)
    return found.clock if isinstance(found, TimedSchedule) else None
