"""Train a U-Net that segments small images. The one-hot masks are built pixel by pixel in nested Python lists.
Fix: ``F.one_hot``."""

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

CLASSES, SIZE, BATCH = 5, 48, 8


class Cells(Dataset):
    def __init__(self, count: int) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.masks = random.integers(CLASSES, size=(count, SIZE // 8, SIZE // 8)).repeat(8, axis=1).repeat(8, axis=2)
        noise = random.standard_normal((count, 1, SIZE, SIZE))
        self.images = (self.masks[:, None] / CLASSES + 0.1 * noise).astype(np.float32)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.images[index], self.masks[index]

    def __len__(self) -> int:
        return len(self.images)


def convolution(inputs: int, outputs: int) -> nn.Layer:
    return nn.Sequential(nn.Conv2D(inputs, outputs, 3, padding=1), nn.BatchNorm2D(outputs), nn.ReLU())


class UNet(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = convolution(1, 8), convolution(8, 16), convolution(16, 32)
        self.up2, self.up1 = nn.Conv2DTranspose(32, 16, 2, stride=2), nn.Conv2DTranspose(16, 8, 2, stride=2)
        self.merge2, self.merge1 = convolution(32, 16), convolution(16, 8)
        self.head = nn.Conv2D(8, CLASSES, 1)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        first = self.down1(images)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.merge2(paddle.concat([self.up2(x), second], axis=1))
        x = self.merge1(paddle.concat([self.up1(x), first], axis=1))
        return self.head(x)


def one_hot_lists(masks: paddle.Tensor) -> paddle.Tensor:
    images = []
    for mask in masks.tolist():
        rows = []
        for row in mask:
            rows.append([[1.0 if label == number else 0.0 for number in range(CLASSES)] for label in row])
        images.append(rows)
    return paddle.to_tensor(images, dtype="float32")


def dice_loss(logits: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    probabilities = F.softmax(logits.transpose([0, 2, 3, 1]))
    overlap = (probabilities * targets).sum(axis=[1, 2])
    total = probabilities.sum(axis=[1, 2]) + targets.sum(axis=[1, 2])
    return 1.0 - ((2.0 * overlap + 1.0) / (total + 1.0)).mean()


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Cells(400), batch_size=BATCH, shuffle=True, drop_last=True)
    model = UNet()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        for images, masks in loader:
            targets = F.one_hot(masks, CLASSES) if fixed else one_hot_lists(masks)
            loss = dice_loss(model(images), targets)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
