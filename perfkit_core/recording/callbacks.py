"""What the callbacks for training frameworks share: their arguments, and the recording of the training that runs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from perfkit_core.recording.step_recording import StepProfiler, StepRecording, check_options, step_window
from perfkit_core.system.paths import absolute


class CallbackRecording(ABC):
    """Records a window of the steps of each training that a callback sees. The arguments are those of the callbacks.

    ``steps`` are the first and the last recorded step; or ``wait``, ``warmup``, ``active``, ``repeat`` and
    ``skip_first`` are the lengths of a cycle, the number of cycles and what precedes them, counted from the first step
    that is trained (default: 1, 1, 5, 1, 0). Without ``warmup``, the step before the first recorded one is for warming
    up. ``also`` are callbacks that get the profiler after each cycle; ``options`` go to the framework's profiler.
    Raises UsageError for arguments that make no sense; the methods never raise.
    """

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
        **options: Any,
    ) -> None:
        check_options(self.profiler_class(), options)
        self.run_dir = absolute(run_dir)
        self.also = tuple(also)
        self.options = options
        self._window = step_window(steps, wait, warmup, active, repeat, skip_first)
        self._recording: StepRecording | None = None

    @abstractmethod
    def profiler_class(self) -> Callable[..., Any]:
        """Return the framework's profiler, whose parameters the options must be."""

    @abstractmethod
    def step_profiler(self) -> StepProfiler:
        """Return a profiler for one training, not yet started."""

    def begin(self, step: int) -> None:
        """A training begins with this step. What an earlier one that broke off has recorded is written."""
        self.abort()
        self._recording = StepRecording(self._window, self.step_profiler())
        self._recording.begin(step)

    def step_ended(self) -> None:
        """The running step has ended; the next one begins."""
        if self._recording:
            self._recording.step_ended()

    def pause(self) -> None:
        """Something else than training begins."""
        if self._recording:
            self._recording.pause()

    def resume(self) -> None:
        """Training goes on; without a ``pause`` before, nothing happens."""
        if self._recording:
            self._recording.resume()

    def finish(self) -> None:
        """Training has ended: the last cycle is written."""
        if self._recording:
            self._recording.finish()
        self._recording = None

    def abort(self) -> None:
        """Training broke off: what was recorded is written. Without a training, nothing happens."""
        if self._recording:
            self._recording.abort()
        self._recording = None
