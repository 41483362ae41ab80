"""``make_scheduler``, which takes the place of ``paddle.profiler.make_scheduler`` and also times the steps."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from perfkit_core.recording.on_demand import WARMUP
from perfkit_core.recording.schedule import NativeActions, demanded, has_plan
from perfkit_core.recording.step_clock import Action, TimedSchedule
from perfkit_paddle import framework


def make_scheduler(
    *,
    closed: int | None = None,
    ready: int | None = None,
    record: int | None = None,
    repeat: int = 0,
    skip_first: int = 0,
    on_demand: Any = None,
) -> TimedSchedule[Any]:
    """Return a scheduler for ``paddle.profiler.Profiler``, with the arguments of ``paddle.profiler.make_scheduler``.

    The scheduler also times each step. :func:`perfkit_paddle.trace_handler` stores the times of the steps that are not
    recorded. They show what a step takes without the profiler, so the training should run for some steps before the
    first recorded step. Timing takes about 10 µs per step.

    From its start to its end, Paddle's Profiler makes each layer and operator create events, even while it is closed. A
    closed step would thus be up to a third longer than a step without a Profiler. The scheduler turns this off.

    ``on_demand`` is a handler that was made with ``on_demand=True``. The scheduler then also has the windows that this
    handler is asked for. Without ``closed``, ``ready`` and ``record``, it has no others."""
    profiling = framework.profiler()
    states = profiling.ProfilerState
    native: Any = None
    if has_plan("make_scheduler", {"closed": closed, "ready": ready, "record": record}, "ready", on_demand):
        native = profiling.make_scheduler(
            closed=closed, ready=ready, record=record, repeat=repeat, skip_first=skip_first
        )
    if on_demand is not None:
        natives = NativeActions(states.CLOSED, states.READY, states.RECORD, states.RECORD_AND_RETURN)
        native = demanded(on_demand, native, natives, WARMUP if ready is None else ready)

    def schedule(step: int) -> Any:
        state = native(step)
        # The profiler that calls TimedSchedule, which calls this function. A schedule gets only the number of the step.
        _make_events(profiling, sys._getframe(2).f_locals.get("self"), state is not states.CLOSED)
        return state

    names = {states.CLOSED: Action.OFF, states.READY: Action.WARM_UP}
    return TimedSchedule(schedule, names, sparse=on_demand is not None)


def _make_events(profiling: Any, profiler: Any, on: bool) -> None:
    """Turn Paddle's creation of events on or off. ``profiler`` is the Profiler that calls the schedule, if known."""
    with contextlib.suppress(AttributeError):  # names in other versions of Paddle
        if profiling.utils._is_profiler_used is not on:
            profiling.utils._is_profiler_used = on
            if profiler.record_shapes or profiler.with_flops:
                inner = profiling.profiler
                (inner.enable_op_info_recorder if on else inner.disable_op_info_recorder)()
