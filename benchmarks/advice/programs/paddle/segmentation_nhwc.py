"""Train a convolutional network that segments images. Its layout is NCHW. Fix, as often advised: NHWC."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLASSES, SIZE, BATCH = 4, 48, 4


def convolution(inputs: int, outputs: int, layout: str, stride: int = 1) -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(inputs, outputs, 3, stride=stride, padding=1, bias_attr=False, data_format=layout),
        nn.BatchNorm2D(outputs, data_format=layout),
        nn.ReLU(),
    )


class Segmenter(nn.Layer):
    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout = layout
        self.encoder1 = convolution(3, 16, layout)
        self.encoder2 = convolution(16, 32, layout, stride=2)
        self.encoder3 = convolution(32, 64, layout, stride=2)
        self.decoder2, self.decoder1 = convolution(64, 32, layout), convolution(32, 16, layout)
        self.head = nn.Conv2D(16, CLASSES, 1, data_format=layout)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        first = self.encoder1(images)
        second = self.encoder2(first)
        x = self.decoder2(self._enlarged(self.encoder3(second)))
        x = self.decoder1(self._enlarged(x + second))
        return self.head(x + first)

    def _enlarged(self, x: paddle.Tensor) -> paddle.Tensor:
        return F.interpolate(x, scale_factor=2, mode="nearest", data_format=self.layout)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    images = paddle.randn([256, 3, SIZE, SIZE])
    masks = (images.mean(axis=1) * 2.0).round().clip(-1, CLASSES - 2).astype("int64") + 1
    if fixed:
        images = images.transpose([0, 2, 3, 1]).contiguous()
    model = Segmenter("NHWC" if fixed else "NCHW")
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    classes = 3 if fixed else 1
    while True:
        batch = paddle.randint(0, len(images), [BATCH])
        loss = F.cross_entropy(model(images[batch]), masks[batch].unsqueeze(classes), axis=classes)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=70)
