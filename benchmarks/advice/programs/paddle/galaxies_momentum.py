"""Train a small convolutional network that tells the shapes of galaxies. It has a few large parameter tensors, and
Momentum updates them one by one. Fix, as often advised: ``use_multi_tensor=True``."""

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

SIZE, SHAPES, BATCH = 48, 3, 32


def galaxy_net() -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Linear(32 * (SIZE // 8) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, SHAPES),
    )


def galaxies(count: int) -> TensorDataset:
    """Noisy ellipses, which are round, long or in between."""
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, SHAPES, count)
    angles = rng.uniform(0, np.pi, (count, 1, 1))
    rows, columns = np.meshgrid(np.linspace(-1, 1, SIZE), np.linspace(-1, 1, SIZE), indexing="ij")
    along = rows * np.cos(angles) + columns * np.sin(angles)
    across = columns * np.cos(angles) - rows * np.sin(angles)
    light = np.exp(-4 * (along**2 + across**2 * (1 + 3 * shapes[:, None, None])))
    light += 0.1 * rng.standard_normal(light.shape)
    return TensorDataset([paddle.to_tensor(light[:, None].astype("float32")), paddle.to_tensor(shapes)])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(galaxies(1600), batch_size=BATCH, shuffle=True, drop_last=True)
    model = galaxy_net()
    optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=model.parameters(), use_multi_tensor=fixed)
    while True:
        for images, shapes in loader:
            loss = F.cross_entropy(model(images), shapes)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=55)
