"""Train a SqueezeNet that recognises flowers. It was written for a small graphics card, and accumulates the gradients
of 16 batches of one picture. Fix: one batch of 16 pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, SPECIES, BATCH = 64, 17, 16


class Flowers(Dataset):
    def __init__(self, count: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.pictures = rng.integers(0, 256, (count, 3, SIZE, SIZE), dtype=np.uint8)
        self.species = rng.integers(0, SPECIES, count)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        picture = self.pictures[index].astype(np.float32) / 127.5 - 1
        return picture, self.species[index]

    def __len__(self) -> int:
        return len(self.species)


class Fire(nn.Layer):
    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2D(inputs, squeezed, 1)
        self.expand1 = nn.Conv2D(squeezed, expanded, 1)
        self.expand3 = nn.Conv2D(squeezed, expanded, 3, padding=1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = F.relu(self.squeeze(x))
        return F.relu(paddle.concat([self.expand1(x), self.expand3(x)], axis=1))


def squeezenet() -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(3, 2, padding=1),
        Fire(32, 8, 32),
        Fire(64, 8, 32),
        nn.MaxPool2D(3, 2, padding=1),
        Fire(64, 16, 64),
        Fire(128, 16, 64),
        nn.MaxPool2D(3, 2, padding=1),
        Fire(128, 24, 96),
        Fire(192, 32, 128),
        nn.Conv2D(256, SPECIES, 1),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
    )


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    size = BATCH if fixed else 1
    accumulation = BATCH // size
    loader = DataLoader(Flowers(1360), batch_size=size, shuffle=True, drop_last=True)
    model = squeezenet()
    optimizer = paddle.optimizer.Momentum(0.005, 0.9, parameters=model.parameters(), weight_decay=5e-4)
    while True:
        for i, (pictures, species) in enumerate(loader):
            loss = F.cross_entropy(model(pictures), species) / accumulation
            loss.backward()
            if (i + 1) % accumulation == 0:
                optimizer.step()
                optimizer.clear_grad()
                yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
