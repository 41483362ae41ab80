"""Which steps of a training are recorded.

What a framework's profiler is told by whoever records the steps of a training, and what it must be able to do.

Are these options that the framework's profiler takes? Asked when they are given, not when training has begun.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from perfkit_core.errors import UsageError
from perfkit_core.recording.writer import CycleWriter

DEFAULT_WAIT: Final = 1
DEFAULT_WARMUP: Final = 1
DEFAULT_ACTIVE: Final = 5


class Action(enum.Enum):
    """What the profiler does during a step."""

    OFF = enum.auto()
    WARM_UP = enum.auto()
    RECORD = enum.auto()


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Cycles of ``wait`` steps off, ``warmup`` steps with the profiler warming up, ``active`` recorded ones.

    ``repeat`` is the number of cycles, 0 as many as there are. The first cycle begins ``skip_first`` steps after the
    step ``origin`` (None: after the first step that this training runs, which a resumed training does not number 0).
    """

    wait: int = DEFAULT_WAIT
    warmup: int = DEFAULT_WARMUP
    active: int = DEFAULT_ACTIVE
    repeat: int = 1
    skip_first: int = 0
    origin: int | None = None

    def __post_init__(self) -> None:
        if min(self.wait, self.warmup, self.repeat, self.skip_first) < 0 or self.active < 1:
            raise UsageError(f"{self} records nothing", "give at least one active step, and no negative number")

    def action(self, step: int, begun: int) -> Action:
        """What to do during ``step`` of a training that began with step ``begun``."""
        cycle, position = self._place(step, begun)
        if cycle < 0 or (self.repeat and cycle >= self.repeat) or position < self.wait:
            return Action.OFF
        return Action.WARM_UP if position < self.wait + self.warmup else Action.RECORD

    def ends_cycle(self, step: int, begun: int) -> bool:
        """Whether ``step`` is the last one of a cycle."""
        return self._place(step, begun)[1] == self._length - 1

    def _place(self, step: int, begun: int) -> tuple[int, int]:
        """Number of the cycle (negative: before the first), and position in it."""
        origin = begun if self.origin is None else self.origin
        return divmod(step - origin - self.skip_first, self._length)

    @property
    def _length(self) -> int:
        return self.wait + self.warmup + self.active


def step_window(
    steps: tuple[int, int] | None = None,
    wait: int | None = None,
    warmup: int | None = None,
    active: int | None = None,
    repeat: int | None = None,
    skip_first: int | None = None,
) -> StepWindow:
    """Either the numbers of the first and the last recorded step, or the lengths of a cycle.

    Raises UsageError for both at once and for windows without a step.
    """
    cycle = {"wait": wait, "active": active, "repeat": repeat, "skip_first": skip_first}
    given = {name: value for name, value in cycle.items() if value is not None}
    if steps is None:
        return StepWindow(warmup=DEFAULT_WARMUP if warmup is None else warmup, **given)
    if given:
        raise UsageError(f"steps={steps} and {', '.join(given)} contradict each other", "give one or the other")
    return _numbered(*steps, DEFAULT_WARMUP if warmup is None else warmup)


def _numbered(first: int, last: int, warmup: int) -> StepWindow:
    if not 0 <= first <= last:
        raise UsageError(f"steps=({first}, {last}) names no steps", "give the first and the last step to record")
    warmup = min(warmup, first)
    return StepWindow(0, warmup, last - first + 1, skip_first=first - warmup, origin=0)


class Ending(enum.Enum):
    """What has become of the step that was begun last, when a cycle ends."""

    ENDED = enum.auto()
    """It has ended."""
    NOT_TAKEN = enum.auto()
    """It does not take place, or takes place later."""
    BROKEN_OFF = enum.auto()
    """It ended in the middle."""


class StepProfiler(Protocol):
    """A framework's profiler, told what to do by a StepRecording."""

    writer: CycleWriter[Any]

    def warm_up(self, step: int) -> None:
        """Get ready during ``step``; nothing is recorded yet."""

    def start(self, step: int) -> None:
        """Record from now on; ``step`` begins now. Comes after ``warm_up`` or without it."""

    def next(self, step: int) -> None:
        """The running step ends and ``step`` begins."""

    def stop(self, ending: Ending) -> None:
        """Write the cycle. Only a step that has ended is a step; one that was broken off is a finding."""

    def cancel(self) -> None:
        """Stop warming up or recording, and write nothing."""


_OURS: Final = {
    "schedule": "give steps=(first, last) or wait, warmup, active",
    "scheduler": "give steps=(first, last) or wait, warmup, active",
    "on_trace_ready": "give it as also=[…]: it is called with the profiler after each cycle",
    "timer_only": "it records no events",
}


def asked(options: Mapping[str, Any], known: Mapping[str, str], recorder: str) -> dict[str, bool]:
    """The profiler's arguments for what is asked of a Recorder; ``known``: option → argument, ``recorder``: its name.

    Raises UsageError for what the profiler cannot record.
    """
    wanted = [name for name, value in options.items() if value]
    for name in wanted:
        if name not in known:
            raise UsageError(f"{recorder} records no {name}", f"leave --{name} out; it can record {', '.join(known)}")
    return {known[name]: True for name in wanted}


def check_options(profiler: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises UsageError for options that are set by perfkit, or unknown to the profiler's class."""
    known = inspect.signature(profiler).parameters
    for name in options:
        if name in _OURS:
            raise UsageError(f"{name} cannot be given here", _OURS[name])
        if name not in known:
            allowed = ", ".join(sorted(known.keys() - _OURS.keys()))
            raise UsageError(f"the profiler has no option {name}", f"it takes {allowed}")
