"""Records a window of the steps of somebody else's training loop, which tells us when a step has ended.

A step lasts from the end of the one before to its own end, so waiting for its data belongs to it. A validation between
two steps belongs to neither and is not recorded: the profiler stops before it, and a new cycle begins after it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from perfkit_core.recording.step_window import Action, Ending, StepProfiler, StepWindow
from perfkit_core.system import failures

P = ParamSpec("P")


def _guarded(method: Callable[Concatenate[StepRecording, P], None]) -> Callable[Concatenate[StepRecording, P], None]:
    """Nothing that goes wrong here reaches the training: it is logged, marked in the run folder, and recording ends."""

    @functools.wraps(method)
    def guarded(self: StepRecording, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._give_up(error)

    return guarded


class StepRecording:
    """One training (a call of ``fit`` or ``train``). The methods never raise."""

    def __init__(self, window: StepWindow, profiler: StepProfiler) -> None:
        self._window = window
        self._profiler = profiler
        self._doing = Action.OFF
        self._running = False
        self._paused = False
        self._begun = self._step = 0
        self._whole_steps = 0  # of the running cycle
        self._recorded = 0  # steps of all cycles

    @_guarded
    def begin(self, step: int) -> None:
        """Training begins; ``step`` is the number of its first step."""
        self._running, self._begun = True, step
        atexit.register(self.abort)  # a training loop that raises may tell nobody
        self._enter(step)

    @_guarded
    def step_ended(self) -> None:
        """The running step has ended; the next one begins."""
        if not self._running:
            return
        self._paused = False
        if self._doing is Action.RECORD:
            self._whole_steps += 1
            self._recorded += 1
            if self._window.ends_cycle(self._step, self._begun):
                self._leave(Ending.ENDED, keep=True)
        self._enter(self._step + 1)

    @_guarded
    def pause(self) -> None:
        """Something else than training begins."""
        if self._running and not self._paused:
            self._paused = True
            self._leave(Ending.NOT_TAKEN, keep=self._whole_steps > 0)

    @_guarded
    def resume(self) -> None:
        """Training goes on; without a ``pause`` before, nothing happens."""
        if self._running and self._paused:
            self._paused = False
            self._enter(self._step)

    @_guarded
    def finish(self) -> None:
        """Training has ended: what was recorded is written. A second call does nothing."""
        if self._running:
            self._leave(Ending.NOT_TAKEN, keep=self._whole_steps > 0)
            self._end()
            if not self._recorded:
                failures.tell(f"none of the chosen steps was trained: {self._trained()}", logging.WARNING)

    @_guarded
    def abort(self) -> None:
        """Training broke off: what was recorded is written, even when it is less than a step."""
        if self._running:
            self._leave(Ending.BROKEN_OFF, keep=True)
            self._end()

    def _enter(self, step: int) -> None:
        self._step = step
        wanted = self._window.action(step, self._begun)
        if wanted is Action.RECORD and self._doing is Action.RECORD:
            self._profiler.next(step)
        elif wanted is Action.RECORD:
            self._profiler.start(step)
        elif wanted is Action.WARM_UP and self._doing is Action.OFF:
            self._profiler.warm_up(step)
        self._doing = wanted

    def _leave(self, ending: Ending, keep: bool) -> None:
        doing, self._doing = self._doing, Action.OFF
        self._whole_steps = 0
        if doing is Action.RECORD and keep:
            self._profiler.stop(ending)
        elif doing is not Action.OFF:
            self._profiler.cancel()

    def _end(self) -> None:
        self._running = False
        atexit.unregister(self.abort)

    def _give_up(self, error: Exception) -> None:
        failures.tell(f"recording ended early, training goes on: {error}")
        failures.tell("recording ended early", logging.DEBUG, error)
        self._end()
        self._profiler.writer.mark_incomplete(error)
        if self._doing is not Action.OFF:
            with contextlib.suppress(Exception):  # it has failed once already; it must only not go on recording
                self._profiler.cancel()

    def _trained(self) -> str:
        if self._step == self._begun:
            return "no step was"
        return f"it had the steps {self._begun} to {self._step - 1}, and the window is {self._window}"
