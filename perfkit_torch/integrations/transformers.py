"""Callbacks for the Hugging Face Trainer: one records a range of training steps, and one logs the throughput.

trainer = Trainer(model, args, train_dataset=data, callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19))])
"""

from __future__ import annotations

from typing import Any

from perfkit_core.throughput.trainer_events import RecordingEvents, ThroughputEvents
from perfkit_torch.record import TorchRecording
from perfkit_torch.throughput import LoaderThroughput

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(f"transformers cannot be imported ({error}): pip install transformers accelerate") from None


class PerfkitCallback(RecordingEvents, TrainerCallback):  # type: ignore[misc]
    """Callback that records the selected steps into a run folder. The arguments are those of
    :class:`perfkit_torch.record.TorchRecording`.

    A step is one update of the weights. It includes all batches whose gradients are accumulated for the update. Its
    number is ``state.global_step`` at the start of the step. Evaluation is not recorded.

    The Trainer does not tell its callbacks about exceptions. An interrupted recording is therefore written at the next
    ``train()``, at :meth:`close`, or when the process ends.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(TorchRecording(*args, **kwargs))


class ThroughputCallback(ThroughputEvents, TrainerCallback):  # type: ignore[misc]
    """Callback that logs the throughput (docs/throughput.md) with ``trainer.log``, whenever the Trainer logs.

    ``trainer.add_callback(ThroughputCallback(trainer))``

    ``samples``: number of samples in each update of the weights. The Trainer does not tell it to its callbacks. Without
    it, steps per second are logged instead of samples per second.
    """

    def __init__(self, trainer: Any, samples: int | None = None) -> None:
        super().__init__(trainer, LoaderThroughput, samples)
