"""Train a residual network on a table with many categorical columns. It has about 120 small parameter tensors, and Adam
updates them one by one. Fix: ``use_multi_tensor=True``."""

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

CATEGORIES = [2, 3, 4, 5, 7, 8, 12, 12, 16, 20, 24, 31, 40, 50, 52, 64, 90, 100, 150, 200]
NUMBERS, EMBEDDING, WIDTH, BLOCKS, BATCH = 24, 6, 64, 16, 256


class Block(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x + self.second(F.relu(self.first(self.norm(x))))


class TabularNet(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.LayerList([nn.Embedding(count, EMBEDDING) for count in CATEGORIES])
        self.stem = nn.Linear(NUMBERS + EMBEDDING * len(CATEGORIES), WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, numbers: paddle.Tensor, categories: paddle.Tensor) -> paddle.Tensor:
        columns = paddle.unbind(categories, axis=1)
        embedded = [embedding(column) for embedding, column in zip(self.embeddings, columns, strict=True)]
        return self.head(self.blocks(self.stem(paddle.concat([numbers, *embedded], axis=1)))).squeeze(1)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    random = np.random.default_rng(0)
    numbers = random.standard_normal((20_000, NUMBERS), dtype=np.float32)
    categories = np.stack([random.integers(count, size=len(numbers)) for count in CATEGORIES], axis=1)
    target = (numbers[:, 0] * numbers[:, 1] + (categories[:, 4] > 3) > 0.5).astype(np.float32)
    model = TabularNet()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters(), use_multi_tensor=fixed)
    while True:
        order = random.permutation(len(numbers))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            logits = model(paddle.to_tensor(numbers[rows]), paddle.to_tensor(categories[rows]))
            loss = F.binary_cross_entropy_with_logits(logits, paddle.to_tensor(target[rows]))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=120)
