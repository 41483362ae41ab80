"""paddle.profiler driven step by step, with the step numbers of the training."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perfkit_core.errors import CaptureError
from perfkit_core.recording.environment import Place
from perfkit_core.recording.step_recording import Ending
from perfkit_core.recording.writer import CycleWriter, Taken
from perfkit_paddle import findings, framework
from perfkit_paddle.capture import place, take


class PaddleStepProfiler:
    """One training's profiler; see :class:`perfkit_core.recording.step_recording.StepProfiler`.

    Each cycle has a Profiler of its own, whose scheduler says what was asked for last and whose step number is set
    before each step. The previous one must be gone by then: Paddle allows one in a process.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]], options: Mapping[str, Any]
    ) -> None:
        self.writer: CycleWriter[Any] = CycleWriter(run_dir, self._take, also, place)
        self._options = options
        self._profiler: Any = None
        self._state: Any = None
        self._cut_off: frozenset[int] = frozenset()
        self._ending = Ending.ENDED
        self._keep = False

    def warm_up(self, step: int) -> None:
        """Paddle's state READY."""
        self._begin(framework.profiler().ProfilerState.READY, step)

    def start(self, step: int) -> None:
        """Record from now on."""
        recording = framework.profiler().ProfilerState.RECORD
        if self._profiler is None:
            self._begin(recording, step)
        else:
            self._state = recording
            self.next(step)

    def next(self, step: int) -> None:
        """One step ends, the next begins."""
        self._profiler.step_num = step - 1
        self._profiler.step()

    def stop(self, ending: Ending) -> None:
        """Write the cycle."""
        running = self._profiler.step_num
        self._ending = ending
        self._cut_off = frozenset() if ending is Ending.ENDED else frozenset({running})
        self._profiler.step_num = running + 1  # none is running when the result is read
        self._keep = True
        self._stop()

    def cancel(self) -> None:
        """Paddle warns that it leaves its warm-up without recording, which is what is wanted."""
        self._keep = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._stop()

    def _begin(self, state: Any, step: int) -> None:
        self._state = state
        profiler = framework.profiler().Profiler(
            scheduler=lambda _: self._state, on_trace_ready=self._ready, **self._options
        )
        if profiler.profiler is None:
            raise CaptureError("another Profiler exists in this process, and Paddle allows one", "use one of them")
        profiler.step_num = step
        profiler.start()
        self._profiler = profiler

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        profiler.stop()

    def _ready(self, profiler: Any) -> None:
        if self._keep:
            self.writer(profiler)

    def _take(self, profiler: Any, place: Place) -> Taken:
        found = tuple(map(findings.partial_step, self._cut_off if self._ending is Ending.BROKEN_OFF else ()))
        return take(profiler, place, no_steps=self._cut_off).then(lambda trace: trace.with_findings(*found))
