"""Callbacks for PyTorch Lightning: one records a range of training steps, and one logs the throughput.

trainer = Trainer(callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19), record_shapes=True)])"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.recording.throughput.trainer_metrics import TrainerMetrics, samples_in
from perfkit_torch.record import TorchRecording
from perfkit_torch.throughput import LoaderThroughput

_PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")


if TYPE_CHECKING:
    from lightning.pytorch import Callback as _Callback
else:  # Prefer the package that is already imported. The trainers of both packages accept either class.
    reasons = []
    for package in sorted(_PACKAGES, key=lambda name: name not in sys.modules):
        try:
            _Callback = importlib.import_module(package).Callback
            break
        except ImportError as error:
            reasons.append(str(error))
    else:
        raise ImportError(f"Lightning cannot be imported ({'; '.join(reasons)}): pip install lightning")


class PerfkitCallback(_Callback):  # type: ignore[misc]
    """Callback that records the selected steps into a run folder. The arguments are those of
    :class:`perfkit_torch.record.TorchRecording`. Each rank writes its own files.

    A step is a training batch. Its number is ``trainer.fit_loop.total_batch_idx``. This number counts from 0 over all
    epochs, and continues when training is resumed. Validation is not recorded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self._recording = TorchRecording(*args, **kwargs)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._recording.begin(trainer.fit_loop.total_batch_idx + 1)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._recording.step_ended()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._recording.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._recording.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._recording.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._recording.abort()


class ThroughputCallback(_Callback):  # type: ignore[misc]
    """Callback that logs the throughput (docs/throughput.md) to the loggers of the trainer.

    - ``every``: number of steps between two logs, by default the trainer's ``log_every_n_steps``
    - ``samples(batch)`` returns the number of samples in a batch, by default the length of its first tensor"""

    def __init__(self, every: int | None = None, samples: Callable[[Any], int | None] = samples_in) -> None:
        super().__init__()
        self._every, self._samples = every, samples
        self._metrics = TrainerMetrics(LoaderThroughput)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._metrics.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._metrics.step(lambda: self._samples(batch))

        def log(metrics: dict[str, float]) -> None:
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=trainer.global_step)

        self._metrics.log(log, every=self._every or trainer.log_every_n_steps)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._metrics.pause()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._metrics.resume()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._metrics.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._metrics.end(wait=False)
