"""Train a multilayer perceptron that predicts the critical temperature of superconductors from 81 properties. The model
runs in dynamic mode. Fix, as often advised: ``paddle.jit.to_static``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PROPERTIES, BATCH = 81, 512


def perceptron() -> nn.Layer:
    return nn.Sequential(
        nn.Linear(PROPERTIES, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 1),
        nn.Flatten(0),
    )


def materials(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardized properties, and a temperature that depends on a few of them."""
    rng = np.random.default_rng(0)
    properties = rng.standard_normal((count, PROPERTIES), dtype=np.float32)
    temperatures = properties[:, 0] * properties[:, 1] + np.abs(properties[:, 2]) + 0.1 * properties[:, 3:9].sum(1)
    return properties, temperatures.astype(np.float32)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    properties, temperatures = materials(21_263)
    rng = np.random.default_rng(1)
    model = perceptron()
    if fixed:
        model = paddle.jit.to_static(model)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=1e-4)
    while True:
        order = rng.permutation(len(properties))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            predictions = model(paddle.to_tensor(properties[rows]))
            loss = F.smooth_l1_loss(predictions, paddle.to_tensor(temperatures[rows]))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=100)
