"""``schedule``, which takes the place of ``torch.profiler.schedule`` and also times the steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfkit_core.recording.on_demand import WARMUP
from perfkit_core.recording.schedule import NativeActions, demanded, has_plan
from perfkit_core.recording.step_clock import Action, TimedSchedule
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
    handler is asked for. Without ``wait``, ``warmup`` and ``active``, it has no others."""
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
        native = _unlabelled(demanded(on_demand, native, states, WARMUP if warmup is None else warmup), actions.NONE)
    names = {actions.NONE: Action.OFF, actions.WARMUP: Action.WARM_UP}
    return TimedSchedule(native, names, sparse=on_demand is not None)


def _unlabelled(schedule: Callable[[int], Any], none: Any) -> Callable[[int], Any]:
    """Return the schedule. It keeps torch's profiler from labelling steps that are not recorded, because the label of a
    step takes more time than all else that an idle profiler does."""

    def chosen(step: int) -> Any:
        action = schedule(step)
        # A profiler reads record_steps after it has called its schedule, which gets only the number of the step. Its
        # handler gets the profiler too late: after the first window. So the profiler is looked up as the caller of
        # TimedSchedule, which calls this function. If something else calls it, the idle steps keep their labels.
        profiler: Any = sys._getframe(2).f_locals.get("self")
        if getattr(profiler, "record_steps", None) is (action is none):
            profiler.record_steps = action is not none
        return action

    return chosen
