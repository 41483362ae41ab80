"""Schedules of a framework's profiler that also record the windows that a handler is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from perfkit_core.errors import UsageError
from perfkit_core.recording.on_demand import OnDemand
from perfkit_core.recording.step_clock import Action

Native = TypeVar("Native")


class NativeActions(NamedTuple, Generic[Native]):
    """What the schedule of a framework returns for a step. ``last``: record, and end the cycle with this step."""

    off: Native
    warm_up: Native
    record: Native
    last: Native


def demanded(
    handler: Any, planned: Callable[[int], Native] | None, native: NativeActions[Native], warmup: int
) -> Callable[[int], Native]:
    """Return a schedule that also records on demand. Between the windows that are ``planned`` (None: there are none),
    it does what ``handler`` is asked for. Raises UsageError if the handler was not made with ``on_demand=True``."""
    demand = getattr(handler, "demand", None)
    if not isinstance(demand, OnDemand):
        text = f"on_demand={handler!r} is no handler that records on demand"
        raise UsageError(text, 'pass on_demand=handler, with handler = trace_handler("runs/baseline", on_demand=True)')
    demand.warmup = warmup
    plan = planned or (lambda step: native.off)
    demand.planned = lambda step: plan(step) != native.off

    def schedule(step: int) -> Native:
        action = demand.action(step)
        by_plan = plan(step)
        if action is Action.OFF or by_plan != native.off:
            return by_plan
        if action is Action.WARM_UP:
            return native.warm_up
        return native.last if demand.ends_cycle(step) else native.record

    return schedule


def has_plan(function: str, lengths: Mapping[str, int | None], warmup: str, on_demand: object) -> bool:
    """Return whether the arguments of a schedule describe planned windows. ``warmup`` is the name of the one that also
    windows on demand have. Raises UsageError if some are missing."""
    missing = [name for name, value in lengths.items() if value is None]
    if not missing:
        return True
    if on_demand is None or lengths.keys() - {*missing, warmup}:
        raise UsageError(
            f"{function} needs {', '.join(lengths)}, and {', '.join(missing)} is missing",
            f"without planned windows, use {function}(on_demand=handler)",
        )
    return False
