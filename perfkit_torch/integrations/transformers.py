"""Profiles a window of training steps in the Hugging Face Trainer.

trainer = Trainer(model, args, train_dataset=data, callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19))])
"""

from __future__ import annotations

from typing import Any

from perfkit_torch.record import TorchRecording

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(f"transformers cannot be imported ({error}): pip install transformers accelerate") from None


class PerfkitCallback(TrainerCallback):  # type: ignore[misc]
    """Record the chosen steps into a run folder. Arguments: those of
    :class:`perfkit_torch.record.TorchRecording`.

    A step is an update of the weights, with all its batches where gradients are accumulated; its number is
    ``state.global_step`` when it begins. Evaluation is not recorded. The Trainer does not tell its callbacks of an
    exception: the recording is then written at the next ``train()``, at :meth:`close`, or when the process ends.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._recording = TorchRecording(*args, **kwargs)

    def close(self) -> None:
        """Write what a training that broke off has recorded. Without one, nothing happens."""
        self._recording.abort()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin the recording."""
        self._recording.begin(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training goes on, if an evaluation came before."""
        self._recording.resume()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training goes on, if an evaluation came before."""
        self._recording.resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step has ended, and the Trainer may be about to evaluate."""
        self._recording.step_ended()
        if control.should_evaluate:
            self._recording.pause()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer may be about to evaluate."""
        if control.should_evaluate:
            self._recording.pause()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation that was not announced."""
        self._recording.pause()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training goes on."""
        self._recording.resume()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        """Training goes on."""
        self._recording.resume()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last cycle is written."""
        self._recording.finish()
