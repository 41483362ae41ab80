"""Train a network that segments fields on tiles of satellite pictures. Its convolutions see coordinates (CoordConv),
and the loss counts the borders of a tile less, by a Hann window. Each step builds the grids of coordinates and the
window again. Fix: build them once."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

BANDS, TILE, CROPS, BATCH = 4, 64, 6, 4


def coordinates(size: int) -> paddle.Tensor:
    """Maps of the place of each pixel: its row, its column, its distance to the centre, and waves of three lengths."""
    axis = paddle.linspace(-1, 1, size)
    rows, columns = paddle.meshgrid(axis, axis)
    maps = [rows, columns, paddle.sqrt(rows**2 + columns**2)]
    for octave in range(3):
        for place in (rows, columns):
            phase = place * (2**octave * math.pi)
            maps += [paddle.sin(phase), paddle.cos(phase)]
    return paddle.stack(maps).unsqueeze(0)


def border_weights(size: int) -> paddle.Tensor:
    window = 0.5 - 0.5 * paddle.cos(2 * math.pi * (paddle.arange(size, dtype="float32") + 0.5) / size)
    weights = window.unsqueeze(1) * window.unsqueeze(0) + 0.05
    return weights / weights.mean()


class CoordConv(nn.Layer):
    def __init__(self, inputs: int, outputs: int, grids: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2D(inputs + 15, outputs, 3, padding=1)
        self.norm = nn.BatchNorm2D(outputs)
        self.coordinates = cache(coordinates) if grids else coordinates

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        grid = self.coordinates(x.shape[-1]).expand([x.shape[0], -1, -1, -1])
        return F.relu(self.norm(self.conv(paddle.concat([x, grid], axis=1))))


class FieldNet(nn.Layer):
    def __init__(self, grids: bool) -> None:
        super().__init__()
        self.stem = CoordConv(BANDS, 8, grids)
        self.down1, self.down2 = CoordConv(8, 16, grids), CoordConv(16, 32, grids)
        self.bottom = CoordConv(32, 32, grids)
        self.up1, self.up2 = CoordConv(32 + 16, 16, grids), CoordConv(16 + 8, 8, grids)
        self.head = nn.Conv2D(8, CROPS, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        full = self.stem(x)
        half = self.down1(F.max_pool2d(full, 2))
        quarter = self.bottom(self.down2(F.max_pool2d(half, 2)))
        half = self.up1(paddle.concat([F.interpolate(quarter, scale_factor=2), half], axis=1))
        return self.head(self.up2(paddle.concat([F.interpolate(half, scale_factor=2), full], axis=1)))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    tiles = paddle.to_tensor(rng.standard_normal((320, BANDS, TILE, TILE), dtype=np.float32))
    crops = paddle.to_tensor(rng.integers(0, CROPS, (len(tiles), TILE // 8, TILE // 8)).repeat(8, 1).repeat(8, 2))
    model = FieldNet(grids=fixed)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    weights_of = cache(border_weights) if fixed else border_weights
    while True:
        for batch in paddle.randperm(len(tiles)).split(len(tiles) // BATCH):
            losses = F.cross_entropy(model(tiles[batch]), crops[batch], axis=1, reduction="none")
            loss = (losses.reshape([BATCH, TILE, TILE]) * weights_of(TILE)).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
