"""Base class for the callbacks of training frameworks: their arguments, and the recording that they control."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from perfkit_core.recording.step_recording import StepProfiler, StepRecording, check_options, step_window
from perfkit_core.system.paths import absolute


class CallbackRecording(StepRecording, ABC):
    """Records a range of steps in each training. The arguments are those of the callbacks.

    Give either ``steps``, the numbers of the first and the last recorded step, or the lengths of a cycle in steps:
    ``wait`` (default 1), ``warmup`` (1) and ``active`` (5). ``repeat`` (1) is the number of cycles, and the first cycle
    begins after ``skip_first`` (0) steps of the training. ``warmup`` is also allowed with ``steps``. ``also``: further
    callbacks, which are called with the profiler after each cycle. ``options`` are passed to the framework's profiler.
    Raises UsageError for invalid arguments. The methods never raise.
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
        """Return the class of the framework's profiler, whose arguments are the valid options."""

    @abstractmethod
    def step_profiler(self) -> StepProfiler:
        """Return a new profiler for one training."""
