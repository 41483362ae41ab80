"""Train a small VGG. ``clear_grad`` fills the gradients with zeros. Fix, as often advised: ``set_to_zero=False``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLASSES, SIZE, BATCH = 10, 32, 8
STAGES = [(16, 1), (32, 1), (64, 2)]


class VGG(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Layer] = []
        channels = 3
        for width, convolutions in STAGES:
            for _ in range(convolutions):
                layers += [nn.Conv2D(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2D(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels * (SIZE // 8) ** 2, 512),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(512, CLASSES),
        )

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.classifier(self.features(images).flatten(1))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    images = paddle.randn([512, 3, SIZE, SIZE])
    labels = paddle.randint(0, CLASSES, [len(images)])
    model = VGG()
    optimizer = paddle.optimizer.Momentum(0.01, 0.9, parameters=model.parameters(), weight_decay=5e-4)
    while True:
        batch = paddle.randint(0, len(images), [BATCH])
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=not fixed)
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=120)
