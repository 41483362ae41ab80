"""What the callbacks for torch's training frameworks share: their arguments, and a recording for each training.

torch.profiler driven step by step, with the step numbers of the training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from perfkit_core.assembly.steps import EMPTY, PARTIAL
from perfkit_core.errors import CaptureError
from perfkit_core.model.trace import Trace
from perfkit_core.recording.environment import Place
from perfkit_core.recording.step_recording import Ending, StepRecording, check_options, step_window
from perfkit_core.recording.writer import CycleWriter, Taken
from perfkit_core.system.paths import absolute
from perfkit_torch.capture import place, take


class TorchStepProfiler:
    """One training's profiler; see :class:`perfkit_core.recording.step_recording.StepProfiler`.

    torch counts the steps of its own schedule from 0. A training that was resumed or that validates in between needs
    other numbers, so the phases of the profiler are called directly and the steps get their labels here.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]], options: Mapping[str, Any]
    ) -> None:
        self.writer = CycleWriter(run_dir, self._take, also, place)
        self._options = options
        self._profiler: Any = None
        self._recording = False
        self._label: Any = None
        self._ending = Ending.ENDED

    def warm_up(self, step: int) -> None:
        """Start the device's tracing, which takes long the first time. Raises CaptureError where torch profiles."""
        if torch.autograd._profiler_enabled():
            raise CaptureError("another torch profiler is running, and a second would end it", "use one of them")
        self._profiler = torch.profiler.profile(**self._options)
        self._profiler.prepare_trace()

    def start(self, step: int) -> None:
        """Record from now on."""
        if self._profiler is None:
            self.warm_up(step)
        self._profiler.start_trace()
        self._recording = True
        self._open(step)

    def next(self, step: int) -> None:
        """One step ends, the next begins."""
        self._close()
        self._open(step)

    def stop(self, ending: Ending) -> None:
        """Write the cycle. A label that is still open when torch stops is a step that was cut off."""
        if ending is Ending.ENDED:
            self._close()
        self._ending = ending
        self.writer(self._stop())

    def cancel(self) -> None:
        """torch cannot leave its warm-up without recording."""
        if not self._recording:
            self._profiler.start_trace()
        self._stop()

    def _stop(self) -> Any:
        profiler, self._profiler, self._recording = self._profiler, None, False
        profiler.stop_trace()
        self._close()
        return profiler

    def _take(self, profiler: Any, place: Place) -> Taken:
        taken = take(profiler, place)
        return taken if self._ending is Ending.BROKEN_OFF else taken.then(_whole)

    def _open(self, step: int) -> None:
        self._label = torch.profiler.record_function(f"ProfilerStep#{step}")
        self._label.__enter__()

    def _close(self) -> None:
        if self._label is not None:
            self._label.__exit__(None, None, None)
            self._label = None


def _whole(trace: Trace) -> Trace:
    """A step that was cut off does not take place, or takes place later: that is no finding."""
    return replace(trace, quality=tuple(f for f in trace.quality if f.code not in (PARTIAL, EMPTY)))


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
