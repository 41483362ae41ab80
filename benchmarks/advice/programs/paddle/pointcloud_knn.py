"""Train a classifier of particle clouds (jets) with edge convolutions. The nearest neighbours of the points are found
cloud by cloud in a Python loop. Fix: one distance matrix and one topk for the whole batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLASSES, POINTS, NEIGHBOURS, BATCH = 5, 32, 4, 64


def nearest(points: paddle.Tensor) -> paddle.Tensor:
    squares = (points * points).sum(axis=-1)
    products = paddle.matmul(points, points, transpose_y=True)
    distances = squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2.0 * products
    return paddle.topk(distances, NEIGHBOURS, largest=False)[1]


class EdgeConvolution(nn.Layer):
    def __init__(self, inputs: int, outputs: int, batched: bool) -> None:
        super().__init__()
        self.batched = batched
        self.edges = nn.Sequential(nn.Linear(2 * inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))

    def forward(self, points: paddle.Tensor) -> paddle.Tensor:
        with paddle.no_grad():
            indices = nearest(points) if self.batched else paddle.stack([nearest(cloud) for cloud in points])
        batch, _, width = points.shape
        offsets = paddle.arange(batch).reshape([batch, 1, 1]) * POINTS
        neighbours = paddle.gather(points.flatten(0, 1), (indices + offsets).flatten())
        neighbours = neighbours.reshape([batch, POINTS, NEIGHBOURS, width])
        centres = points.unsqueeze(2).expand_as(neighbours)
        return self.edges(paddle.concat([centres, neighbours - centres], axis=-1)).mean(axis=2)


class PointNetwork(nn.Layer):
    def __init__(self, batched: bool) -> None:
        super().__init__()
        self.first, self.second = EdgeConvolution(3, 16, batched), EdgeConvolution(16, 32, batched)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, points: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.second(self.first(points)).mean(axis=1))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    labels = paddle.randint(0, CLASSES, [1000])
    scale = 1.0 + labels.astype("float32").reshape([-1, 1, 1]) / CLASSES
    clouds = paddle.randn([len(labels), POINTS, 3]) * scale
    model = PointNetwork(batched=fixed)
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        batch = paddle.randint(0, len(labels), [BATCH])
        loss = F.cross_entropy(model(clouds[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=110)
