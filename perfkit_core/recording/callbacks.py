"""Common base of the callbacks for training frameworks: their arguments and the running recording."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from perfkit_core.recording.step_recording import StepProfiler, StepRecording, check_options, step_window
from perfkit_core.system.paths import absolute


class CallbackRecording(StepRecording, ABC):
    """Recorder of a window of the steps of each training of a callback. The arguments are those of the callbacks.

    ``steps``: the first and last recorded step. Otherwise ``wait``, ``warmup``, ``active`` (lengths of a cycle in
    steps), ``repeat`` (cycles) and ``skip_first`` count from the first trained step (default: 1, 1, 5, 1, 0).
    ``warmup`` defaults to the step before the first recorded one. ``also``: callbacks that receive the profiler after
    each cycle; ``options`` go to the framework's profiler. Raises UsageError for invalid arguments; the methods never
    raise.
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
        super().__init__(step_window(steps, wait, warmup, active, repeat, skip_first), self.step_profiler)

    @abstractmethod
    def profiler_class(self) -> Callable[..., Any]:
        """Return the framework's profiler, which defines the valid options."""

    @abstractmethod
    def step_profiler(self) -> StepProfiler:
        """Return a profiler for one training, not yet started."""
