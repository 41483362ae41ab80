"""Events of trainers that call their callbacks as ``on_step_end(args, state, control)``. The callbacks of the adapters
inherit from these classes and from the trainer's own class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfkit_core.recording.step_recording import StepRecording
from perfkit_core.throughput.loop import Throughput
from perfkit_core.throughput.trainer_metrics import TrainerMetrics


class RecordingEvents:
    """Records steps. A step is an update of the weights, whose number is ``state.global_step`` where it begins."""

    def __init__(self, recording: StepRecording) -> None:
        self._recording = recording

    def close(self) -> None:
        """If the training ended with an exception, write its recording."""
        self._recording.abort()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recording.begin(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recording.resume()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recording.resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recording.step_ended()
        if control.should_evaluate:
            self._recording.pause()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if control.should_evaluate:
            self._recording.pause()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recording.pause()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recording.resume()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        self._recording.resume()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._recording.finish()


class ThroughputEvents:
    """Logs the throughput with ``trainer.log``, whenever the trainer logs. ``samples``: number of samples per step."""

    def __init__(self, trainer: Any, new: Callable[..., Throughput], samples: int | None) -> None:
        self._trainer, self._samples = trainer, samples
        self._metrics = TrainerMetrics(new)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._metrics.begin()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._metrics.resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._metrics.step(lambda: self._samples)
        if control.should_log:
            self._metrics.log(self._trainer.log)
        if control.should_evaluate:
            self._metrics.pause()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if control.should_evaluate:
            self._metrics.pause()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._metrics.resume()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._metrics.end()
