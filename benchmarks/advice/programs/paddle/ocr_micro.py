"""Train a network with convolutions and a GRU that reads lines of text. Each step accumulates the gradients of eight
batches of one line. Fix: one batch of eight lines."""

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

HEIGHT, LENGTH, CHARACTERS, HIDDEN, BATCH = 32, 128, 37, 64, 8


class Recogniser(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2D((2, 1)),
        )
        self.rnn = nn.GRU(64 * HEIGHT // 8, HIDDEN, direction="bidirectional")
        self.head = nn.Linear(2 * HIDDEN, CHARACTERS)

    def forward(self, lines: paddle.Tensor) -> paddle.Tensor:
        x = self.features(lines)
        outputs, _ = self.rnn(x.transpose([0, 3, 1, 2]).flatten(2))
        return self.head(outputs)


def lines_of_text(count: int) -> TensorDataset:
    """Pictures of lines, and the character of each frame of four pixels."""
    rng = np.random.default_rng(0)
    shapes = rng.random((CHARACTERS, HEIGHT, 4))
    frames = rng.integers(0, CHARACTERS, (count, LENGTH // 4))
    lines = shapes[frames].transpose(0, 2, 1, 3).reshape(count, 1, HEIGHT, LENGTH)
    lines += 0.1 * rng.standard_normal(lines.shape)
    return TensorDataset([paddle.to_tensor(lines.astype("float32")), paddle.to_tensor(frames)])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    size = BATCH if fixed else 1
    accumulated = BATCH // size
    loader = DataLoader(lines_of_text(640), batch_size=size, shuffle=True, drop_last=True)
    model = Recogniser()
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=model.parameters())
    while True:
        for i, (lines, frames) in enumerate(loader, 1):
            loss = F.cross_entropy(model(lines), frames) / accumulated
            loss.backward()
            if i % accumulated == 0:
                optimizer.step()
                optimizer.clear_grad()
                yield


if __name__ == "__main__":
    run(training, "paddle", steps=45)
