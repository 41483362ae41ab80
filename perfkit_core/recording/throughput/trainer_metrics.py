"""The throughput of a training whose loop belongs to a trainer, for callbacks that log it as metrics, and the events of
trainers that call their callbacks as ``on_step_end(args, state, control)``. The callbacks of the adapters inherit from
the classes of events and from the trainer's own class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from perfkit_core.base.system import failures
from perfkit_core.recording.step_recording import StepRecording
from perfkit_core.recording.throughput.loop import Throughput


class TrainerMetrics:
    """Times the steps between ``begin`` and ``end``, and logs averages. The methods never raise."""

    def __init__(self, new: Callable[..., Throughput]) -> None:
        self._throughput = new(warmup=0)
        self._training = self._running = self._failed = False
        self._steps = 0

    def begin(self) -> None:
        self._training = True
        self.resume()

    def end(self, wait: bool = True) -> None:
        """End the training. If ``wait`` is set, wait until the device has finished the last step."""
        self.pause(wait)
        self._training = False

    def resume(self) -> None:
        """Go on after ``pause``. Do nothing outside a training, for example after a validation of its own."""
        if self._training and not self._running:
            self._running = True
            self._guarded(self._throughput.start)

    def pause(self, wait: bool = True) -> None:
        """Leave out what follows, such as a validation."""
        if self._running:
            self._running = False
            self._guarded(lambda: self._throughput.stop(wait))

    def step(self, samples: Callable[[], int | None]) -> None:
        """End a step with this number of samples."""
        if self._running:
            self._steps += 1
            self._guarded(lambda: self._throughput.step(self._guarded(samples)))

    def log(self, log: Callable[[dict[str, float]], Any], every: int = 1) -> None:
        """Call ``log`` with the averages since the last call, after every ``every`` steps."""
        if self._running and every and self._steps % every == 0:  # a trainer that never logs has 0
            self._guarded(lambda: self._log(log))

    def _log(self, log: Callable[[dict[str, float]], Any]) -> None:
        metrics = self._throughput.metrics()
        if metrics:
            log(metrics)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            if failures.raised_by_signal(error):
                raise
            if not self._failed:  # each step would repeat it
                self._failed = True
                failures.log("the throughput could not be logged, training continues", error)
            return None


def samples_in(batch: Any) -> int | None:
    """Return the length of the first tensor or array in a batch, or None if there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((length for length in map(samples_in, parts) if length is not None), None)


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
