"""Recording of selected steps (:class:`StepWindow`) of a training loop that reports the end of each step.

A :class:`StepRecording` starts and stops the framework's :class:`StepProfiler`. A step begins when the previous step
ends, so it includes the wait for its data. A validation between two steps belongs to no step: the profiler stops before
the validation, and a new cycle begins after it."""

from __future__ import annotations

import atexit
import contextlib
import enum
import functools
import inspect
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol

from perfkit_core.base.language.messages import Text, plural, render
from perfkit_core.base.system import failures
from perfkit_core.base.system.paths import absolute, as_path
from perfkit_core.base.system.processes import watch_forks
from perfkit_core.errors import UsageError, spelled_like
from perfkit_core.recording import signals
from perfkit_core.recording.on_demand import OnDemand
from perfkit_core.recording.schedule import StepWindow, WindowsOnDemand, step_window
from perfkit_core.recording.step_clock import Action, StepClock
from perfkit_core.recording.window_limit import Checks, EventEstimate
from perfkit_core.recording.writer import CycleWriter, callbacks
from perfkit_core.trace.model.meta import Finding

P = ParamSpec("P")

_CHOOSE: Final = "leave it out: perfkit makes it from the steps that you choose"
_SET_BY_PERFKIT: Final = {
    "schedule": _CHOOSE,
    "scheduler": _CHOOSE,
    "on_trace_ready": "pass the function in also=[…]: perfkit calls it with the profiler after each cycle",
    "timer_only": "leave it out: with timer_only, the profiler records no events",
}


def profiler_arguments(
    options: Mapping[str, Any], supported: Mapping[str, str], framework: str, instead: Mapping[str, Text] | None = None
) -> dict[str, bool]:
    """Return the arguments of the framework's profiler for options of ``perfkit record``. Raises UsageError for an
    option that is not in ``supported``.

    - ``supported`` maps options to arguments.
    - ``instead`` maps unsupported options to a sentence on the alternative."""
    enabled = [name for name, value in options.items() if value]
    for name in enabled:
        if name not in supported:
            hint = f"leave --{name} out; {framework} can record {', '.join(supported)}"
            hint += f". {render(instead[name])}" if instead and name in instead else ""
            raise UsageError(f"{framework} cannot record {name}", hint)
    return {supported[name]: True for name in enabled}


def check_options(profiler: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that the class ``profiler`` does not have, or that perfkit itself sets."""
    parameters = inspect.signature(profiler).parameters
    for name in options:
        if name in _SET_BY_PERFKIT:
            raise UsageError(f"{name} cannot be given here", _SET_BY_PERFKIT[name])
        if name not in parameters:
            allowed = sorted(parameters.keys() - _SET_BY_PERFKIT.keys())
            raise UsageError(f"the profiler has no option {name}", spelled_like(name, allowed, "its options are"))


class Ending(enum.Enum):
    """State of the last step at the end of a cycle."""

    ENDED = enum.auto()
    NOT_BEGUN = enum.auto()
    INTERRUPTED = enum.auto()


Held = Callable[..., None]
"""Writes a cycle that was recorded before. The arguments are findings about it."""


class StepProfiler(Protocol):
    """Interface of a framework's profiler that a StepRecording controls."""

    writer: CycleWriter[Any]
    clock: StepClock

    def warm_up(self, step: int) -> None:
        """Warm up the profiler during ``step``."""

    def start(self, step: int | None) -> None:
        """Start recording with ``step``, None for what comes before the first. The profiler may be warmed up."""

    def next(self, step: int) -> None:
        """End the running step and begin ``step``."""

    def hold(self, ending: Ending) -> Held:
        """Stop recording, and return a function that writes the cycle. If the last step was interrupted, the cycle
        reports a partial step."""

    def records_waits(self, source: Any) -> bool:
        """Return whether the framework records the waits for the items of ``source``, a loader or an iterator."""

    def begin_wait(self, label: str) -> None:
        """Begin to record a wait for input, as data loading. ``start`` has been called."""

    def end_wait(self) -> None:
        """End the wait, unless the recording has ended since it began."""

    def estimate(self) -> EventEstimate:
        """Return the estimate of the events since the start."""

    def events(self) -> int | None:
        """Return the number of events of the cycle that was just stopped, None if counting them would take long."""

    def cancel(self) -> None:
        """Stop the warm-up or the recording without writing."""

    def may_stop(self) -> bool:
        """Return whether the calling thread can stop the profiler."""

    def forked(self) -> None:
        """In a forked child, record no more events of the parent's recording. Stopping takes long if it has many."""


_of_parent: list[StepProfiler] = []
"""Profilers that recorded when this process was forked. The child stops them before it records itself."""


def leave_to_parent(profiler: StepProfiler) -> None:
    """In a forked child, leave the running recording to the parent. Otherwise the memory of workers that a data loader
    forks would grow, and each worker would read all events when it ends."""
    if profiler not in _of_parent:
        _of_parent.append(profiler)
        with contextlib.suppress(Exception):
            profiler.forked()


def stop_those_of_parent() -> None:
    while _of_parent:
        with contextlib.suppress(Exception):
            _of_parent.pop().cancel()


def _guarded(method: Callable[Concatenate[StepRecording, P], None]) -> Callable[Concatenate[StepRecording, P], None]:
    """Decorate a method so that it never raises. An error is logged, ends the recording, and marks it as incomplete.
    Signals that end the process are delayed until the method returns. Errors that a signal handler of the script raised
    are raised."""

    @functools.wraps(method)
    def guarded(self: StepRecording, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with signals.shared().delayed():
            inside, self.inside = self.inside, True
            try:
                method(self, *args, **kwargs)
            except Exception as error:
                if failures.raised_by_signal(error):
                    raise
                failures.tell(f"recording ended early, training continues: {error}")
                failures.tell("recording ended early", logging.DEBUG, error)
                self._end()
                self._profiler.writer.mark_incomplete(error)
                if self._action is not Action.OFF:
                    with contextlib.suppress(Exception):  # the profiler may fail again
                        self._profiler.cancel()
            finally:
                self.inside = inside

    return guarded


class StepRecording:
    """Recording of one or more trainings. A training is a call of ``fit`` or ``train``. The methods never raise."""

    _profiler: StepProfiler
    _clock: StepClock

    def __init__(
        self, window: StepWindow, new_profiler: Callable[[], StepProfiler], demand: OnDemand | None = None
    ) -> None:
        self.demand = demand
        self._window = window if demand is None else WindowsOnDemand(demand)
        self._new_profiler = new_profiler
        self._action = Action.OFF
        self._running = self._paused = False
        self._begun = self._step = 0
        self._steps_of_cycle = self._recorded = 0  # recorded steps of this cycle; recorded steps of this training
        self.inside = False
        """Whether one of the methods is running."""
        self.most_events: int | None = None  # of a window; None is the default of the framework
        self._written_events = 0  # of this window, in cycles that have ended
        self._over, self._skip = False, -1  # whether the window has ended early; a step that is not recorded
        self._waits = False  # whether a wait for input is being recorded
        self._checks: Checks | None = None
        self.cut: Text | None = None
        """Why the last window that had too many events ended early."""
        watch_forks(self)

    def forked(self) -> None:
        """In a forked child, forget the training of the parent."""
        if self._running and self._action is not Action.OFF:
            leave_to_parent(self._profiler)
        self.forget()

    def forget(self) -> None:
        """End the recording without stopping the profiler."""
        if self._running:
            self._running, self._action, self._waits = False, Action.OFF, False
            self._end_checks()
            atexit.unregister(self.abort)

    @property
    def step(self) -> int:
        """The number of the running step."""
        return self._step

    @property
    def complete(self) -> int:
        """The number of complete steps that were recorded in this training."""
        return self._recorded

    @property
    def recording(self) -> bool:
        """Whether the profiler is recording."""
        return self._action is Action.RECORD

    def begin(self, step: int, recording: bool = False) -> None:
        """Begin a training with this step. If the previous training did not end, first write its recording.
        ``recording``: the profiler of the training is recording already, and goes on."""
        self.abort()
        self._profiler = self._new_profiler()
        self._clock = self._profiler.clock
        self._clock.sparse = self.demand is not None
        self._running, self._paused, self._begun = True, False, step
        self._action, self._steps_of_cycle, self._recorded = Action.OFF, 0, 0
        self._over, self._skip, self._written_events = False, -1, 0
        if recording:
            self._action, self._checks = Action.RECORD, Checks(self.check)
        atexit.register(self.abort)  # a training loop that raises may not call finish()
        self._clock.begins(step, self._planned(step))
        self._enter(step)

    def step_ended(self, at_ns: int | None = None) -> None:
        """End the running step and begin the next one (``at_ns``: see :meth:`.StepClock.begins`)."""
        if not self._running:
            return
        ends_window = self._window.ends_cycle(self._step, self._begun)
        if ends_window:
            self._over, self._written_events = False, 0
        off = self._action is Action.OFF and not self._paused and self.demand is None
        if off and self._planned(self._step + 1) is Action.OFF:  # nearly all steps: without what takes long
            self._clock.begins(self._step + 1, Action.OFF, at_ns)
            self._step += 1
        else:
            self._end_step(ends_window, at_ns)

    @_guarded
    def _end_step(self, ends_window: bool, at_ns: int | None) -> None:
        self._paused = False
        self._clock.begins(self._step + 1, self._planned(self._step + 1), at_ns)
        if self._action is Action.RECORD:
            self._steps_of_cycle += 1
            self._recorded += 1
            if ends_window:
                self._leave(Ending.ENDED, keep=True)
            else:
                self._end_if_full(Ending.ENDED)
        self._enter(self._step + 1)

    def wait_begins(self, source: Any, label: str) -> None:
        """Record that the loop begins to wait, or goes on to wait, for an item of ``source``: as the framework does, or
        else as an event with the name ``label``."""
        if self._action is Action.RECORD:
            self._begin_wait(source, label)

    def wait_ended(self) -> None:
        if self._waits:
            self._end_wait()

    @_guarded
    def _begin_wait(self, source: Any, label: str) -> None:
        if self._profiler.records_waits(source):
            self.wait_ended()
        elif not self._waits:
            self._profiler.begin_wait(label)
            self._waits = True

    @_guarded
    def _end_wait(self) -> None:
        self._waits = False
        self._profiler.end_wait()

    @_guarded
    def pause(self) -> None:
        """Suspend the recording, for example during validation."""
        if self._running and not self._paused:
            self._paused = True
            if self.demand is not None:
                self.demand.paused = True
            self._clock.interrupted()
            self._leave(Ending.NOT_BEGUN, keep=self._steps_of_cycle > 0)

    @_guarded
    def resume(self) -> None:
        """Continue after ``pause``. If the recording is not paused, do nothing."""
        if self._running and self._paused:
            self._paused = False
            self._clock.begins(self._step, self._planned(self._step))
            self._enter(self._step)

    @_guarded
    def finish(self) -> None:
        """End the training and write the recording. A second call does nothing."""
        if not self._running:
            return
        self._leave(Ending.NOT_BEGUN, keep=self._steps_of_cycle > 0)
        self._clock.save_rest()
        self._end()
        if not self._recorded and isinstance(self._window, StepWindow):
            trained = f"steps {self._begun} to {self._step - 1}" if self._step > self._begun else "no step"
            selected = self._window.described(self._begun)
            text = f"none of the selected steps was recorded: the loop ran {trained}, and should record {selected}"
            failures.tell(text, logging.WARNING)

    @_guarded
    def abort(self, keep: bool = True) -> None:
        """If a training is running, end its recording. ``keep``: write it even if it contains no complete step."""
        if self._running:
            self._leave(Ending.INTERRUPTED, keep)
            self._end()

    @_guarded
    def _enter(self, step: int) -> None:
        self._step = step
        if self.demand is not None:
            self.demand.paused = False
        action = self._planned(step)
        if action is not Action.OFF:
            stop_those_of_parent()
        if action is Action.RECORD and self._action is Action.RECORD:
            self._profiler.next(step)
        elif action is Action.RECORD:
            self._profiler.start(step)
            self._checks = Checks(self.check)
        elif action is Action.WARM_UP and self._action is Action.OFF:
            self._profiler.warm_up(step)
        self._action = action

    def check(self) -> None:
        """End the window within a step if it has too many events. Python calls this between two instructions of the
        main thread, perhaps within another method."""
        if not self.inside and self._running and self._action is Action.RECORD:
            self._end_within_step()

    @_guarded
    def _end_within_step(self) -> None:
        self._end_if_full(Ending.INTERRUPTED)

    def _planned(self, step: int) -> Action:
        action = self._window.action(step, self._begun)
        return Action.OFF if action is Action.RECORD and (self._over or step == self._skip) else action

    def _end_if_full(self, ending: Ending) -> None:
        """End the cycle if the window has too many events, or would have with a further step. The estimate may be too
        high. If the events show that, the window continues after a step that is not recorded: a label that is open now
        must not end while torch records again."""
        estimate, steps = self._profiler.estimate(), self._steps_of_cycle
        estimated = estimate.events()
        more = estimated // steps if ending is Ending.ENDED else 0
        left = (self.most_events or estimate.most_events) - self._written_events
        allowed = left if steps == 0 or ending is Ending.ENDED else 2 * left
        reason = estimate.reason(allowed, more, self._profiler.writer.announced)
        if reason is None:
            return
        write = self._held(ending)
        events = self._profiler.events()
        if events is not None and 4 * events < min(estimated, left):
            self._written_events += events
            self._skip = self._step + 1
            write()
            return
        self._over, self.cut = True, reason
        text = plural(
            "recording ended early, because {reason}: 1 step is complete",
            "recording ended early, because {reason}: {n} steps are complete",
            self._recorded,
            reason=reason,
        )
        write(Finding("window-ended-early", text))

    def _held(self, ending: Ending) -> Held:
        self._action, self._steps_of_cycle = Action.OFF, 0
        self._end_checks()
        return self._profiler.hold(ending)

    def _end_checks(self) -> None:
        checks, self._checks = self._checks, None
        if checks is not None:
            checks.end()

    def _leave(self, ending: Ending, keep: bool) -> None:
        action = self._action
        if action is Action.RECORD and keep:
            self._held(ending)()
        elif action is not Action.OFF:
            self._action = Action.OFF
            self._end_checks()
            self._profiler.cancel()
        self._steps_of_cycle = 0

    def _end(self) -> None:
        self._running = False
        if self.demand is not None:
            self.demand.close()
        atexit.unregister(self.abort)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a profiler writes its cycles, the callbacks that follow, and the arguments of the framework's profiler."""

    run_dir: Path
    options: Mapping[str, Any]
    also: tuple[Callable[[Any], Any], ...] = ()
    demand: OnDemand | None = None


class CallbackRecording(StepRecording, ABC):
    """Recording of selected steps of each training, for callbacks. There are three ways to select the steps:

    - ``steps=(first, last)``: the numbers of the first and the last recorded step. ``warmup`` may be added.
    - A cycle of ``wait`` (default 1), ``warmup`` (1) and ``active`` (5) steps. ``repeat`` (1) is the number of cycles.
      The first cycle begins after ``skip_first`` (0) steps of the training.

    - ``on_demand=True``: the steps that ``perfkit capture`` asks for.

    ``also`` contains further callbacks, which are called with the profiler after each cycle. ``options`` are passed to
    the framework's profiler. The constructor raises UsageError for invalid arguments. The other methods never raise."""

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        steps: tuple[int, int] | None = None,
        *,
        wait: int | None = None,
        warmup: int | None = None,
        active: int | None = None,
        repeat: int | None = None,
        skip_first: int | None = None,
        also: Iterable[Callable[[Any], Any]] = (),
        on_demand: bool = False,
        **options: Any,
    ) -> None:
        check_options(self.profiler_class(), options)
        window = step_window(steps, wait, warmup, active, repeat, skip_first)
        self.run_dir = absolute(run_dir)
        demand = None
        if on_demand:
            if window != StepWindow(warmup=window.warmup):
                raise UsageError("on_demand=True and a choice of steps cannot be combined", "give only one of them")
            demand = OnDemand(as_path(self.run_dir))
            demand.warmup = window.warmup
        target = Target(as_path(self.run_dir), options, callbacks(also), demand)
        super().__init__(window, lambda: self.step_profiler(target), demand)

    @abstractmethod
    def profiler_class(self) -> Callable[..., Any]:
        """Return the class of the framework's profiler, whose arguments are the valid options."""

    @abstractmethod
    def step_profiler(self, target: Target) -> StepProfiler:
        """Return a new profiler for one training."""
