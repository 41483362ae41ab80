"""What the callbacks for torch's training frameworks share: their arguments, and a recording for each training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import torch

from perfkit_core.paths import absolute
from perfkit_core.recording.profiler_options import check_options
from perfkit_core.recording.step_recording import StepRecording
from perfkit_core.recording.step_window import step_window
from perfkit_torch.integrations.step_profiler import TorchStepProfiler


class Recordings:
    """Makes the recording of each training that a callback sees. The arguments are those of the callbacks.

    ``steps`` are the first and the last recorded step; or ``wait``, ``warmup``, ``active``, ``repeat`` and
    ``skip_first`` as in ``torch.profiler.schedule``, counted from the first step that is trained (default: 1, 1, 5, 1,
    0). Without ``warmup``, the step before the first recorded one is for warming up.
    ``also`` are callbacks that get the profiler after each cycle; ``options`` go to torch.profiler.profile.
    Raises UsageError for arguments that make no sense.
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
        check_options(torch.profiler.profile, options)
        self._run_dir = absolute(run_dir)
        self._window = step_window(steps, wait, warmup, active, repeat, skip_first)
        self._also = tuple(also)
        self._options = options

    def new(self) -> StepRecording:
        """The recording of one training, not yet begun."""
        return StepRecording(self._window, TorchStepProfiler(self._run_dir, self._also, self._options))
