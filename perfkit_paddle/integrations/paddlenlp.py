"""Callbacks for PaddleNLP's Trainer: one records a range of training steps, and one logs the throughput.

trainer = Trainer(model, args=args, train_dataset=data, callbacks=[PerfkitCallback("runs/baseline", steps=(10, 19))])"""

from __future__ import annotations

from perfkit_core.recording.throughput.trainer_metrics import RecordingEvents, ThroughputEvents
from perfkit_paddle.record import PaddleRecording
from perfkit_paddle.throughput import Throughput

try:
    from paddlenlp.trainer import TrainerCallback
except ImportError as error:
    raise ImportError(f"paddlenlp cannot be imported ({error}): pip install paddlenlp") from None


class PerfkitCallback(RecordingEvents, TrainerCallback):  # type: ignore[misc]
    recording = PaddleRecording


class ThroughputCallback(ThroughputEvents, TrainerCallback):  # type: ignore[misc]
    throughput = Throughput
