"""Profiles a window of training steps in the Hugging Face Trainer.

trainer = Trainer(model, args, train_dataset=data, callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19))])
"""

from __future__ import annotations

from typing import Any

from perfkit_core.recording.step_recording import StepRecording
from perfkit_torch.integrations.step_recording import Recordings

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(f"transformers cannot be imported ({error}): pip install transformers accelerate") from None


class PerfkitCallback(TrainerCallback):  # type: ignore[misc]
    """Record the chosen steps into a run folder. Arguments: those of
    :class:`perfkit_torch.integrations.step_recording.Recordings`.

    A step is an update of the weights, with all its batches where gradients are accumulated; its number is
    ``state.global_step`` when it begins. Evaluation is not recorded. The Trainer does not tell its callbacks of an
    exception: the recording is then written at the next ``train()``, at :meth:`close`, or when the process ends.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._recordings = Recordings(*args, **kwargs)
        self._recording: StepRecording | None = None

    def close(self) -> None:
        """Write what a training that broke off has recorded. Without one, nothing happens."""
        if self._recording:
            self._recording.abort()
        self._recording = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begins the recording."""
        self.close()
        self._recording = self._recordings.new()
        self._recording.begin(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training goes on, if an evaluation came before."""
        self._resume()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training goes on, if an evaluation came before."""
        self._resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step has ended, and the Trainer may be about to evaluate."""
        if self._recording:
            self._recording.step_ended()
        self._pause_before_evaluation(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer may be about to evaluate."""
        self._pause_before_evaluation(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation that was not announced."""
        if self._recording:
            self._recording.pause()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training goes on."""
        self._resume()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        """Training goes on."""
        self._resume()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last cycle is written."""
        if self._recording:
            self._recording.finish()
        self._recording = None

    def _pause_before_evaluation(self, control: Any) -> None:
        if self._recording and control.should_evaluate:
            self._recording.pause()

    def _resume(self) -> None:
        if self._recording:
            self._recording.resume()
