"""Which steps are recorded: those of a :class:`StepWindow`, by their numbers, and those that a handler is asked for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final, Generic, NamedTuple, TypeVar

from perfkit_core.errors import UsageError
from perfkit_core.recording.on_demand import OnDemand
from perfkit_core.recording.step_clock import Action

Native = TypeVar("Native")
DEFAULT_WARMUP: Final = 1


@dataclass(frozen=True, slots=True)
class StepWindow:
    """The selected steps, in cycles of ``wait``, then ``warmup``, then ``active`` steps."""

    wait: int = 1  # steps of a cycle without the profiler
    warmup: int = DEFAULT_WARMUP  # steps of a cycle in which the profiler warms up
    active: int = 5  # recorded steps of a cycle
    repeat: int = 1  # number of cycles; 0 means no limit
    skip_first: int = 0  # number of steps from ``origin`` to the first cycle
    origin: int | None = None  # ``skip_first`` counts from this step; None: the training's first step

    def __post_init__(self) -> None:
        for name, least in (("wait", 0), ("warmup", 0), ("active", 1), ("repeat", 0), ("skip_first", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise UsageError(f"{name}={value!r} is no valid number", f"give a whole number of {least} or more")

    def described(self, begun: int) -> str:
        """Return the selected steps in words. ``begun`` is the number of the training's first step."""
        first = (begun if self.origin is None else self.origin) + self.skip_first + self.wait + self.warmup
        steps = f"steps {first} to {first + self.active - 1}"
        period = self.wait + self.warmup + self.active
        return steps if self.repeat == 1 else f"{steps}, then {self.active} of every {period} steps"

    def action(self, step: int, begun: int) -> Action:
        """Return what the profiler does during ``step``. ``begun`` is the number of the training's first step."""
        cycle, position = self._cycle_and_position(step, begun)
        if cycle < 0 or (self.repeat and cycle >= self.repeat) or position < self.wait:
            return Action.OFF
        return Action.WARM_UP if position < self.wait + self.warmup else Action.RECORD

    def ends_cycle(self, step: int, begun: int) -> bool:
        """Return whether ``step`` is the last step of a cycle."""
        return self._cycle_and_position(step, begun)[1] == self.wait + self.warmup + self.active - 1

    def _cycle_and_position(self, step: int, begun: int) -> tuple[int, int]:
        """Return the number of the step's cycle (negative before the first cycle) and its position in the cycle."""
        origin = begun if self.origin is None else self.origin
        return divmod(step - origin - self.skip_first, self.wait + self.warmup + self.active)


def step_window(
    steps: tuple[int, int] | None = None,
    wait: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat: int | None = None,
    skip_first: int | None = None,
) -> StepWindow:
    """Return the window that the arguments describe: either the first and the last recorded step (``steps``), or cycles
    (``wait``, ``active``, …). Both ways allow ``warmup``. Raises UsageError for invalid arguments."""
    warmup = DEFAULT_WARMUP if warmup is None else warmup
    cycle = {"wait": wait, "active": active, "repeat": repeat, "skip_first": skip_first}
    lengths = {name: value for name, value in cycle.items() if value is not None}
    window = StepWindow(warmup=warmup, **lengths)
    if steps is None:
        return window
    if lengths:
        raise UsageError(f"steps={steps} and {', '.join(lengths)} cannot be combined", "give only one of them")
    first, last = step_range("steps", steps)
    warmup = min(warmup, first)
    return StepWindow(0, warmup, last - first + 1, skip_first=first - warmup, origin=0)


def step_range(name: str, value: Any) -> tuple[int, int]:
    """Return the first and the last step. ``name`` is the parameter that has the value. Raises UsageError."""
    hint = f"give the first and the last step to record, for example {name}=(10, 19)"
    try:
        first, last = map(operator.index, value)
    except (TypeError, ValueError):
        raise UsageError(f"{name}={value!r} is no pair of steps", hint) from None
    if not 0 <= first <= last:
        raise UsageError(f"{name}=({first}, {last}) selects no steps", hint)
    return first, last


@dataclass(frozen=True, slots=True)
class WindowsOnDemand:
    """The windows that are asked for while the training runs, with the methods of a :class:`StepWindow`."""

    demand: OnDemand

    def action(self, step: int, begun: int) -> Action:
        return self.demand.action(step)

    def ends_cycle(self, step: int, begun: int) -> bool:
        return self.demand.ends_cycle(step)


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
