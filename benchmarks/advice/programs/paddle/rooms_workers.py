"""Train an encoder and decoder that estimates the depth of rooms from pictures. The pictures are in memory and need no
work, so that the training process loads them in no time. Fix: two workers of the data loader."""

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

ROOMS, SIZE, BATCH = 800, 48, 8


class Rooms(Dataset):
    """Walls at some distance with a box in front of them. Things are darker where they are farther away."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.depths = np.empty((ROOMS, 1, SIZE, SIZE), dtype=np.float32)
        self.depths[:] = rng.uniform(4, 8, (ROOMS, 1, 1, 1)) - np.linspace(0, 2, SIZE)[:, None]
        for depth in self.depths:
            top, left = rng.integers(0, SIZE // 2, 2)
            depth[:, top : top + SIZE // 3, left : left + SIZE // 3] = rng.uniform(1, 2)
        colours = rng.uniform(0.5, 1, (ROOMS, 3, 1, 1)).astype(np.float32)
        self.pictures = colours / self.depths + rng.normal(0, 0.02, (ROOMS, 3, SIZE, SIZE)).astype(np.float32)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.pictures[index], self.depths[index]

    def __len__(self) -> int:
        return ROOMS


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Layer:
    return nn.Sequential(
        nn.Conv2D(inputs, outputs, 3, stride=stride, padding=1, bias_attr=False), nn.BatchNorm2D(outputs), nn.ReLU()
    )


class DepthNet(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = block(3, 24, 2), block(24, 48, 2), block(48, 96, 2)
        self.up2, self.up1 = block(96 + 48, 48), block(48 + 24, 24)
        self.head = nn.Conv2D(24, 1, 3, padding=1)

    def forward(self, pictures: paddle.Tensor) -> paddle.Tensor:
        """The logarithm of the depth."""
        half = self.down1(pictures)
        quarter = self.down2(half)
        x = F.interpolate(self.down3(quarter), scale_factor=2, mode="nearest")
        x = F.interpolate(self.up2(paddle.concat([x, quarter], axis=1)), scale_factor=2, mode="nearest")
        x = F.interpolate(self.up1(paddle.concat([x, half], axis=1)), scale_factor=2, mode="nearest")
        return self.head(x)


def scale_invariant_loss(estimated: paddle.Tensor, depths: paddle.Tensor) -> paddle.Tensor:
    difference = estimated - paddle.log(depths)
    return difference.square().mean() - 0.85 * difference.mean().square()


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Rooms(), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2 if fixed else 0)
    model = DepthNet()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        losses = []
        for pictures, depths in loader:
            loss = scale_invariant_loss(model(pictures), depths)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(loss.item())
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=120)
