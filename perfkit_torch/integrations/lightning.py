"""Profiles a window of training steps in PyTorch Lightning (``lightning`` and ``pytorch_lightning``).

trainer = Trainer(callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19), record_shapes=True)])
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.recording.step_recording import StepRecording
from perfkit_torch.integrations.step_recording import Recordings

_PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")


def _base() -> type:
    """The Callback of the Lightning that is in use, or else installed. A trainer of either takes both."""
    reasons = []
    for name in sorted(_PACKAGES, key=lambda name: name not in sys.modules):
        try:
            base: type = importlib.import_module(name).Callback
        except ImportError as error:
            reasons.append(str(error))
        else:
            return base
    raise ImportError(f"Lightning cannot be imported ({'; '.join(reasons)}): pip install lightning")


if TYPE_CHECKING:
    from lightning.pytorch import Callback as _Callback
else:
    _Callback = _base()


class PerfkitCallback(_Callback):  # type: ignore[misc]
    """Record the chosen steps into a run folder. Arguments: those of
    :class:`perfkit_torch.integrations.step_recording.Recordings`.

    A step is a training batch, numbered from 0 over all epochs (``trainer.fit_loop.total_batch_idx``), also after a
    resumed checkpoint. Validation is not recorded. Each rank writes its own files.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._recordings = Recordings(*args, **kwargs)
        self._recording: StepRecording | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the recording."""
        self._recording = self._recordings.new()
        self._recording.begin(trainer.fit_loop.total_batch_idx + 1)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step has ended."""
        if self._recording:
            self._recording.step_ended()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Not a part of training."""
        if self._recording:
            self._recording.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Training goes on."""
        if self._recording:
            self._recording.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The last cycle is written."""
        if self._recording:
            self._recording.finish()
        self._recording = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """What was recorded is written."""
        if self._recording:
            self._recording.abort()
        self._recording = None
