"""Profiles a window of training steps of ``paddle.Model.fit``.

model.fit(data, callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19))])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from perfkit_core.recording.step_recording import StepRecording, check_options, step_window
from perfkit_core.system.paths import absolute
from perfkit_paddle import framework
from perfkit_paddle.integrations.step_recording import PaddleStepProfiler

if TYPE_CHECKING:
    from paddle.callbacks import Callback as _Callback
else:
    _Callback = framework.paddle().callbacks.Callback


class PerfkitCallback(_Callback):  # type: ignore[misc]
    """Records the chosen steps into a run folder.

    ``steps`` are the first and the last recorded step; or ``wait``, ``warmup``, ``active``, ``repeat`` and
    ``skip_first`` as the lengths of a cycle, the number of cycles and what precedes them (default: 1, 1, 5, 1, 0).
    Without ``warmup``, the step before the first recorded one is for warming up.
    ``also`` are callbacks that get the profiler after each cycle; ``options`` go to
    paddle.profiler.Profiler. Raises UsageError for arguments that make no sense.

    A step is a training batch, numbered from 0 over all epochs of one ``fit``. Evaluation is not recorded. ``fit`` does
    not tell its callbacks of an exception: the recording is then written at the next ``fit``, at :meth:`close`, or when
    the process ends.
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
        super().__init__()
        check_options(framework.profiler().Profiler, options)
        self._run_dir = absolute(run_dir)
        self._window = step_window(steps, wait, warmup, active, repeat, skip_first)
        self._also = tuple(also)
        self._options = options
        self._recording: StepRecording | None = None

    def close(self) -> None:
        """Write what a training that broke off has recorded. Without one, nothing happens."""
        if self._recording:
            self._recording.abort()
        self._recording = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins the recording."""
        self.close()
        self._recording = StepRecording(self._window, PaddleStepProfiler(self._run_dir, self._also, self._options))
        self._recording.begin(0)

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        """A step has ended."""
        if self._recording:
            self._recording.step_ended()

    def on_eval_begin(self, logs: Any = None) -> None:
        """Not a part of training."""
        if self._recording:
            self._recording.pause()

    def on_eval_end(self, logs: Any = None) -> None:
        """Training goes on."""
        if self._recording:
            self._recording.resume()

    def on_train_end(self, logs: Any = None) -> None:
        """The last cycle is written."""
        if self._recording:
            self._recording.finish()
        self._recording = None
