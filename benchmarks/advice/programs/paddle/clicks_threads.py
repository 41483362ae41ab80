"""Train a deep and cross network that predicts clicks on advertisements. Its large products run on one thread, which is
what Paddle does unless it is told otherwise. Fix: OMP_NUM_THREADS=2 before Paddle is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

if "--fixed" in sys.argv:
    os.environ["OMP_NUM_THREADS"] = "2"

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

FIELDS, BUCKETS, WIDTH, NUMBERS, CROSSES, BATCH = 26, 400, 16, 13, 3, 384
INPUTS = FIELDS * WIDTH + NUMBERS


class DeepCross(nn.Layer):
    """The second version of the deep and cross network: each cross layer has a full matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(FIELDS * BUCKETS, WIDTH)
        self.crosses = nn.LayerList([nn.Linear(INPUTS, INPUTS) for _ in range(CROSSES)])
        self.deep = nn.Sequential(
            nn.Linear(INPUTS, 768),
            nn.ReLU(),
            nn.Linear(768, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
        )
        self.head = nn.Linear(INPUTS + 256, 1)

    def forward(self, categories: paddle.Tensor, numbers: paddle.Tensor) -> paddle.Tensor:
        embedded = self.embedding(categories).reshape([-1, FIELDS * WIDTH])
        first = paddle.concat([embedded, numbers], axis=1)
        crossed = first
        for layer in self.crosses:
            crossed = first * layer(crossed) + crossed
        return self.head(paddle.concat([crossed, self.deep(first)], axis=1)).squeeze(1)


def impressions(rng: np.random.Generator) -> Iterator[tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]]:
    """Impressions of advertisements, and whether they were clicked. Two of the fields interact."""
    offsets = np.arange(FIELDS) * BUCKETS
    while True:
        categories = rng.integers(0, BUCKETS, (BATCH, FIELDS))
        numbers = np.log1p(rng.exponential(10, (BATCH, NUMBERS))).astype(np.float32)
        interest = numbers[:, 0] - numbers[:, 1] + ((categories[:, 0] + categories[:, 1]) % 7 == 0)
        clicked = (interest + rng.normal(size=BATCH) > 1).astype(np.float32)
        yield paddle.to_tensor(categories + offsets), paddle.to_tensor(numbers), paddle.to_tensor(clicked)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    model = DeepCross()
    optimizer = paddle.optimizer.Adagrad(0.002, parameters=model.parameters())
    losses = []
    for step, (categories, numbers, clicked) in enumerate(impressions(np.random.default_rng(0)), start=1):
        loss = F.binary_cross_entropy_with_logits(model(categories, numbers), clicked)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 20 == 0:
            losses.append(loss.item())
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=80)
