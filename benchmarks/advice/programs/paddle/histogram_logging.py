"""Train an image classifier. After every step, a logger writes the mean, the deviation and a histogram of the weights
and gradients of all layers. Fix: every 50 steps."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLASSES, SIZE, BATCH = 10, 32, 16


class Classifier(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(3, 16, 3, padding=1),
            nn.BatchNorm2D(16),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(16, 32, 3, padding=1),
            nn.BatchNorm2D(32),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(32, 64, 3, padding=1),
            nn.BatchNorm2D(64),
            nn.ReLU(),
            nn.MaxPool2D(2),
        )
        self.head = nn.Sequential(nn.Linear(64 * (SIZE // 8) ** 2, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.features(images).flatten(1))


class Logger:
    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "statistics.jsonl"

    def log_model(self, model: nn.Layer, step: int) -> None:
        with self.path.open("a") as file:
            for name, parameter in model.named_parameters():
                self._write(file, step, f"weights/{name}", parameter.numpy())
                if parameter.grad is not None:
                    self._write(file, step, f"gradients/{name}", parameter.grad.numpy())

    def _write(self, file: TextIO, step: int, name: str, values: np.ndarray) -> None:
        counts, edges = np.histogram(values, bins=64)
        entry = {
            "step": step,
            "name": name,
            "mean": float(values.mean()),
            "std": float(values.std()),
            "counts": counts.tolist(),
            "edges": edges.tolist(),
        }
        print(json.dumps(entry), file=file)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    images = paddle.randn([1024, 3, SIZE, SIZE])
    labels = paddle.randint(0, CLASSES, [len(images)])
    model = Classifier()
    optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=model.parameters())
    log_every = 50 if fixed else 1
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        logger = Logger(folder)
        while True:
            batch = paddle.randint(0, len(images), [BATCH])
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            if step % log_every == 0:
                logger.log_model(model, step)
            optimizer.clear_grad()
            step += 1
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=70)
