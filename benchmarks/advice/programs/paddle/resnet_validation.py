"""Validate a residual network for small images. The model is in evaluation mode, but autograd records the validation as
well. Fix: paddle.no_grad."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, CLASSES, BATCH = 32, 10, 32


class Block(nn.Layer):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(inputs, outputs, 3, stride, 1, bias_attr=False)
        self.conv2 = nn.Conv2D(outputs, outputs, 3, 1, 1, bias_attr=False)
        self.norm1, self.norm2 = nn.BatchNorm2D(outputs), nn.BatchNorm2D(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2D(inputs, outputs, 1, stride, bias_attr=False), nn.BatchNorm2D(outputs)
            )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet() -> nn.Layer:
    layers: list[nn.Layer] = [nn.Conv2D(3, 16, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(16), nn.ReLU()]
    channels = 16
    for width, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        layers.append(Block(channels, width, stride))
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((1600, 3, SIZE, SIZE), dtype="float32")
    labels = rng.integers(0, CLASSES, (1600, 1))
    loader = DataLoader(TensorDataset([paddle.to_tensor(images), paddle.to_tensor(labels)]), batch_size=BATCH)
    model = resnet()
    while True:
        model.eval()
        losses, hits = [], []
        for batch, answers in loader:
            with paddle.no_grad() if fixed else nullcontext():
                logits = model(batch)
                losses.append(float(F.cross_entropy(logits, answers)))
                hits.append(float(paddle.metric.accuracy(logits, answers)))
            yield
        print(f"validation loss {np.mean(losses):.4f}, accuracy {np.mean(hits):.3f}")


if __name__ == "__main__":
    run(training, "paddle", steps=50)
