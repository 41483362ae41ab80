"""Train a recurrent network that recognises human activities in the signals of a phone's sensors. A Python loop calls
a GRU cell for each point in time. Fix: a GRU layer, which takes the whole sequence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CHANNELS, LENGTH, HIDDEN, ACTIVITIES, BATCH = 9, 128, 64, 6, 32


class ActivityClassifier(nn.Layer):
    def __init__(self, whole_sequence: bool) -> None:
        super().__init__()
        self.whole_sequence = whole_sequence
        self.rnn = nn.GRU(CHANNELS, HIDDEN) if whole_sequence else nn.GRUCell(CHANNELS, HIDDEN)
        self.head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, ACTIVITIES))

    def forward(self, signals: paddle.Tensor) -> paddle.Tensor:
        if self.whole_sequence:
            _, states = self.rnn(signals)
            return self.head(states[-1])
        state = paddle.zeros([signals.shape[0], HIDDEN])
        for t in range(signals.shape[1]):
            _, state = self.rnn(signals[:, t], state)
        return self.head(state)


def recordings(count: int) -> TensorDataset:
    """Windows of sensor signals: each activity has a rhythm of its own."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, ACTIVITIES, count)
    phases = rng.uniform(0, 2 * np.pi, (count, 1, CHANNELS))
    times = np.arange(LENGTH)[None, :, None] / 50
    signals = np.sin(2 * np.pi * (1 + labels[:, None, None]) * times + phases)
    signals += 0.3 * rng.standard_normal(signals.shape)
    return TensorDataset([paddle.to_tensor(signals.astype("float32")), paddle.to_tensor(labels)])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(recordings(2048), batch_size=BATCH, shuffle=True, drop_last=True)
    model = ActivityClassifier(whole_sequence=fixed)
    optimizer = paddle.optimizer.Adam(
        learning_rate=1e-3, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0)
    )
    while True:
        for signals, labels in loader:
            loss = F.cross_entropy(model(signals), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=40)
