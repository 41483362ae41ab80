"""Events of trainers that call their callbacks as ``on_step_end(args, state, control)``. The callbacks of the adapters
inherit from these classes and from the trainer's own class."""

from __future__ import annotations

from typing import Any, ClassVar

from perfkit_core.recording.step_recording import StepRecording
from perfkit_core.recording.throughput.loop import Throughput
from perfkit_core.recording.throughput.trainer_metrics import TrainerMetrics


class RecordingEvents:
    """Callback that records the selected steps into a run folder. The arguments are those of the class ``recording``.

    A step is one update of the weights. It includes all batches whose gradients are accumulated for the update. Its
    number is ``state.global_step`` at the start of the step. Evaluation is not recorded.

    The Trainer does not tell its callbacks about exceptions. An interrupted recording is therefore written at the next
    ``train()``, at :meth:`close`, or when the process ends."""

    recording: ClassVar[type[StepRecording]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._recording = self.recording(*args, **kwargs)

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
    """Callback that logs the throughput (docs/throughput.md) with ``trainer.log``, whenever the Trainer logs.

    ``trainer.add_callback(ThroughputCallback(trainer))``

    ``samples``: number of samples in each update of the weights. The Trainer does not tell it to its callbacks. Without
    it, steps per second are logged instead of samples per second."""

    throughput: ClassVar[type[Throughput]]

    def __init__(self, trainer: Any, samples: int | None = None) -> None:
        self._trainer, self._samples = trainer, samples
        self._metrics = TrainerMetrics(self.throughput)

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
