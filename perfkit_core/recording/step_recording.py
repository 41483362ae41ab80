"""Recording of a window of the steps (:class:`StepWindow`) of a training loop that reports the end of each step.

A :class:`StepRecording` starts and stops the framework's :class:`StepProfiler`. A step lasts from the end of the
previous one to its own end, so it includes the wait for its data. A validation between two steps belongs to neither:
the profiler stops before it, and a new cycle begins after it.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, Protocol

from perfkit_core.errors import UsageError
from perfkit_core.recording.writer import CycleWriter
from perfkit_core.system import failures

P = ParamSpec("P")

DEFAULT_WARMUP: Final = 1


class Action(enum.Enum):
    """What the profiler does during a step."""

    OFF = enum.auto()
    WARM_UP = enum.auto()
    RECORD = enum.auto()


@dataclass(frozen=True, slots=True)
class StepWindow:
    """Cycles of ``wait`` steps off, ``warmup`` steps with the profiler warming up, and ``active`` recorded steps.
    ``repeat``: number of cycles, 0 for no limit. The first cycle begins ``skip_first`` steps after the step ``origin``
    (None: the first step of this training, which is not 0 in a resumed one)."""

    wait: int = 1
    warmup: int = DEFAULT_WARMUP
    active: int = 5
    repeat: int = 1
    skip_first: int = 0
    origin: int | None = None

    def __post_init__(self) -> None:
        if min(self.wait, self.warmup, self.repeat, self.skip_first) < 0 or self.active < 1:
            raise UsageError(f"{self} records nothing", "give at least one active step, and no negative number")

    def action(self, step: int, begun: int) -> Action:
        """Return the action during ``step`` of a training that began with step ``begun``."""
        cycle, position = self._place(step, begun)
        if cycle < 0 or (self.repeat and cycle >= self.repeat) or position < self.wait:
            return Action.OFF
        return Action.WARM_UP if position < self.wait + self.warmup else Action.RECORD

    def ends_cycle(self, step: int, begun: int) -> bool:
        """Return whether ``step`` is the last one of a cycle."""
        return self._place(step, begun)[1] == self.wait + self.warmup + self.active - 1

    def _place(self, step: int, begun: int) -> tuple[int, int]:
        """Return the number of the cycle (negative: before the first) and the position in it."""
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
    """Return the window for the first and last recorded step, or for the lengths of a cycle. Raises UsageError if both
    are given, and for windows without a step."""
    warmup = DEFAULT_WARMUP if warmup is None else warmup
    cycle = {"wait": wait, "active": active, "repeat": repeat, "skip_first": skip_first}
    given = {name: value for name, value in cycle.items() if value is not None}
    if steps is None:
        return StepWindow(warmup=warmup, **given)
    if given:
        raise UsageError(f"steps={steps} and {', '.join(given)} contradict each other", "give one or the other")
    first, last = steps
    if not 0 <= first <= last:
        raise UsageError(f"steps=({first}, {last}) selects no steps", "give the first and the last step to record")
    warmup = min(warmup, first)
    return StepWindow(0, warmup, last - first + 1, skip_first=first - warmup, origin=0)


_SET_BY_PERFKIT: Final = {
    "schedule": "give steps=(first, last) or wait, warmup, active",
    "scheduler": "give steps=(first, last) or wait, warmup, active",
    "on_trace_ready": "give it as also=[…]: it is called with the profiler after each cycle",
    "timer_only": "it records no events",
}


def asked(options: Mapping[str, Any], known: Mapping[str, str], recorder: str) -> dict[str, bool]:
    """Return the profiler's arguments for the options of the recorder named ``recorder``. ``known``: option → argument.
    Raises UsageError for options that the profiler does not support."""
    wanted = [name for name, value in options.items() if value]
    for name in wanted:
        if name not in known:
            raise UsageError(f"{recorder} records no {name}", f"leave --{name} out; it can record {', '.join(known)}")
    return {known[name]: True for name in wanted}


def check_options(profiler: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise UsageError for options that perfkit sets itself and for options unknown to the profiler's class."""
    known = inspect.signature(profiler).parameters
    for name in options:
        if name in _SET_BY_PERFKIT:
            raise UsageError(f"{name} cannot be given here", _SET_BY_PERFKIT[name])
        if name not in known:
            allowed = ", ".join(sorted(known.keys() - _SET_BY_PERFKIT.keys()))
            raise UsageError(f"the profiler has no option {name}", f"it takes {allowed}")


class Ending(enum.Enum):
    """State of the last step at the end of a cycle."""

    ENDED = enum.auto()
    NOT_TAKEN = enum.auto()
    """It does not take place, or only later."""
    BROKEN_OFF = enum.auto()
    """It was interrupted."""


class StepProfiler(Protocol):
    """A framework's profiler, controlled by a StepRecording."""

    writer: CycleWriter[Any]

    def warm_up(self, step: int) -> None:
        """Warm up during ``step`` without recording."""

    def start(self, step: int) -> None:
        """Start recording with ``step``, with or without a preceding ``warm_up``."""

    def next(self, step: int) -> None:
        """End the running step and begin ``step``."""

    def stop(self, ending: Ending) -> None:
        """Write the cycle. Only a completed step counts as a step; an interrupted one becomes a finding."""

    def cancel(self) -> None:
        """Stop warming up or recording without writing."""


def _guarded(method: Callable[Concatenate[StepRecording, P], None]) -> Callable[Concatenate[StepRecording, P], None]:
    """Keep errors from the training: log them, mark the run as incomplete, and end the recording."""

    @functools.wraps(method)
    def guarded(self: StepRecording, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            failures.tell(f"recording ended early, training continues: {error}")
            failures.tell("recording ended early", logging.DEBUG, error)
            self._end()
            self._profiler.writer.mark_incomplete(error)
            if self._action is not Action.OFF:
                with contextlib.suppress(Exception):  # the profiler failed before; only stop the recording
                    self._profiler.cancel()

    return guarded


class StepRecording:
    """Recording of trainings (calls of ``fit`` or ``train``), each with a new profiler. The methods never raise."""

    _profiler: StepProfiler

    def __init__(self, window: StepWindow, new_profiler: Callable[[], StepProfiler]) -> None:
        self._window = window
        self._new_profiler = new_profiler
        self._action = Action.OFF
        self._running = self._paused = False
        self._begun = self._step = 0
        self._steps_of_cycle = self._recorded = 0  # completed in the running cycle, in all cycles of the training

    def begin(self, step: int) -> None:
        """Begin a training with this step; write the recording of an earlier one that was interrupted."""
        self.abort()
        self._profiler = self._new_profiler()
        self._running, self._paused, self._begun = True, False, step
        self._action, self._steps_of_cycle, self._recorded = Action.OFF, 0, 0
        atexit.register(self.abort)  # a training loop that raises may not report its end
        self._enter(step)

    @_guarded
    def step_ended(self) -> None:
        """End the running step and begin the next one."""
        if not self._running:
            return
        self._paused = False
        if self._action is Action.RECORD:
            self._steps_of_cycle += 1
            self._recorded += 1
            if self._window.ends_cycle(self._step, self._begun):
                self._leave(Ending.ENDED, keep=True)
        self._enter(self._step + 1)

    @_guarded
    def pause(self) -> None:
        """Suspend the recording, for example during a validation."""
        if self._running and not self._paused:
            self._paused = True
            self._leave(Ending.NOT_TAKEN, keep=self._steps_of_cycle > 0)

    @_guarded
    def resume(self) -> None:
        """Continue after ``pause``; otherwise do nothing."""
        if self._running and self._paused:
            self._paused = False
            self._enter(self._step)

    @_guarded
    def finish(self) -> None:
        """End the training and write the recording. A second call does nothing."""
        if not self._running:
            return
        self._leave(Ending.NOT_TAKEN, keep=self._steps_of_cycle > 0)
        self._end()
        if not self._recorded:
            trained = f"the loop ran steps {self._begun} to {self._step - 1}, but the window is {self._window}"
            trained = trained if self._step > self._begun else "no step was"
            failures.tell(f"none of the chosen steps was reached: {trained}", logging.WARNING)

    @_guarded
    def abort(self) -> None:
        """End an interrupted training; write the recording even if it is shorter than a step."""
        if self._running:
            self._leave(Ending.BROKEN_OFF, keep=True)
            self._end()

    @_guarded
    def _enter(self, step: int) -> None:
        self._step = step
        action = self._window.action(step, self._begun)
        if action is Action.RECORD and self._action is Action.RECORD:
            self._profiler.next(step)
        elif action is Action.RECORD:
            self._profiler.start(step)
        elif action is Action.WARM_UP and self._action is Action.OFF:
            self._profiler.warm_up(step)
        self._action = action

    def _leave(self, ending: Ending, keep: bool) -> None:
        action, self._action = self._action, Action.OFF
        self._steps_of_cycle = 0
        if action is Action.RECORD and keep:
            self._profiler.stop(ending)
        elif action is not Action.OFF:
            self._profiler.cancel()

    def _end(self) -> None:
        self._running = False
        atexit.unregister(self.abort)
