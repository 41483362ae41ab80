"""Train a deep autoencoder that completes the ratings of films. Paddle calculates with one thread by default. Fix:
``OMP_NUM_THREADS`` is the number of cores, before paddle is imported."""

from __future__ import annotations

import os
import sys

if "--fixed" in sys.argv:  # paddle reads the variable when it is imported
    os.environ["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

USERS, FILMS, WIDTH, CODE, BATCH = 6040, 3000, 256, 128, 256


class AutoRec(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FILMS, WIDTH), nn.SELU(), nn.Linear(WIDTH, CODE), nn.SELU())
        self.dropout = nn.Dropout(0.5)
        self.decoder = nn.Sequential(nn.Linear(CODE, WIDTH), nn.SELU(), nn.Linear(WIDTH, FILMS))

    def forward(self, ratings: paddle.Tensor) -> paddle.Tensor:
        return self.decoder(self.dropout(self.encoder(ratings)))


def rated_films() -> np.ndarray:
    """Stars from one to five, or zero where a user has not rated a film."""
    rng = np.random.default_rng(0)
    stars = rng.integers(1, 6, (USERS, FILMS), dtype=np.int8)
    return stars * (rng.random((USERS, FILMS), dtype=np.float32) < 0.05)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    ratings = rated_films()
    rng = np.random.default_rng(1)
    model = AutoRec()
    optimizer = paddle.optimizer.Momentum(0.005, 0.9, parameters=model.parameters())
    while True:
        order = rng.permutation(USERS)
        for start in range(0, USERS - BATCH + 1, BATCH):
            batch = paddle.to_tensor(ratings[order[start : start + BATCH]].astype(np.float32))
            rated = (batch > 0).astype("float32")
            loss = (F.mse_loss(model(batch), batch, reduction="none") * rated).sum() / rated.sum()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=60)
