"""Callbacks for the Hugging Face Trainer: one records a range of training steps, and one logs the throughput.

trainer = Trainer(model, args, train_dataset=data, callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19))])"""

from __future__ import annotations

from perfkit_core.recording.throughput.trainer_metrics import RecordingEvents, ThroughputEvents
from perfkit_torch.record import TorchRecording
from perfkit_torch.throughput import LoaderThroughput

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(f"transformers cannot be imported ({error}): pip install transformers accelerate") from None


class PerfkitCallback(RecordingEvents, TrainerCallback):  # type: ignore[misc]
    recording = TorchRecording


class ThroughputCallback(ThroughputEvents, TrainerCallback):  # type: ignore[misc]
    throughput = LoaderThroughput
