"""``schedule``, which takes the place of ``torch.profiler.schedule`` and also times the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit_core.recording.on_demand import WARMUP, NativeActions, demanded, has_plan
from perfkit_core.recording.step_clock import Action, StepClock, TimedSchedule
from perfkit_torch import framework

if TYPE_CHECKING:
    import torch


def schedule(
    *,
    wait: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
    on_demand: Any = None,
) -> TimedSchedule[torch.profiler.ProfilerAction]:
    """Return a schedule for ``torch.profiler.profile``, with the arguments of ``torch.profiler.schedule``.

    The schedule also times each step. :func:`perfkit_torch.trace_handler` stores the times of the steps that are not
    recorded. They show what a step takes without the profiler, so the training should run for some steps before the
    first recorded step. Timing takes about 10 µs per step.

    ``on_demand`` is a handler that was made with ``on_demand=True``. The schedule then also has the windows that this
    handler is asked for. Without ``wait``, ``warmup`` and ``active``, it has no others.
    """
    profiler = framework.torch().profiler
    actions = profiler.ProfilerAction
    native: Any = None
    if has_plan("schedule", {"wait": wait, "warmup": warmup, "active": active}, "warmup", on_demand):
        optional = {"skip_first_wait": skip_first_wait} if skip_first_wait else {}  # older versions lack it
        native = profiler.schedule(
            wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first, **optional
        )
    if on_demand is not None:
        states = NativeActions(actions.NONE, actions.WARMUP, actions.RECORD, actions.RECORD_AND_SAVE)
        native = demanded(on_demand, native, states, WARMUP if warmup is None else warmup)
    return TimedSchedule(native, {actions.NONE: Action.OFF, actions.WARMUP: Action.WARM_UP})


def clock(profiler: object) -> StepClock | None:
    """Return the clock of the schedule that the profiler has, or None if it is another schedule."""
    found = getattr(profiler, "schedule", None)
    return found.clock if isinstance(found, TimedSchedule) else None
