"""Train a neural collaborative filter that recommends movies. Every fifth step, the hit rate of some users is measured,
while autograd remembers all operators. Fix: paddle.no_grad around the measurement."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

USERS, MOVIES, FACTORS, BATCH, NEGATIVES = 1200, 1800, 32, 256, 4
TESTED, CANDIDATES, HITS = 64, 100, 10


class Watched:
    """Which user watched which movies, by their taste. The last movie of each user is kept for the hit rate."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        tastes, topics = rng.normal(0, 1, (USERS, 8)), rng.normal(0, 1, (MOVIES, 8))
        scores = tastes @ topics.T + rng.gumbel(0, 1, (USERS, MOVIES))
        watched = np.argpartition(-scores, 30, axis=1)[:, :30]
        self.train, self.test = watched[:, :-1], watched[:, -1]

    def batch(self) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Movies that users watched, and some others for each of them."""
        users = self.rng.integers(0, USERS, BATCH)
        positives = self.train[users, self.rng.integers(0, self.train.shape[1], BATCH)]
        negatives = self.rng.integers(0, MOVIES, BATCH * NEGATIVES)
        movies = np.concatenate([positives, negatives])
        labels = np.concatenate([np.ones(BATCH), np.zeros(BATCH * NEGATIVES)]).astype(np.float32)
        return paddle.to_tensor(np.tile(users, 1 + NEGATIVES)), paddle.to_tensor(movies), paddle.to_tensor(labels)

    def candidates(self) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Some users, each with the movie that was kept and many others."""
        users = self.rng.choice(USERS, TESTED, replace=False)
        others = self.rng.integers(0, MOVIES, (TESTED, CANDIDATES - 1))
        movies = np.concatenate([self.test[users][:, None], others], axis=1)
        return paddle.to_tensor(users.repeat(CANDIDATES)), paddle.to_tensor(movies.reshape(-1))


class NeuMF(nn.Layer):
    """A product of factors beside a network on other factors."""

    def __init__(self) -> None:
        super().__init__()
        self.user_factors, self.movie_factors = nn.Embedding(USERS, FACTORS), nn.Embedding(MOVIES, FACTORS)
        self.users, self.movies = nn.Embedding(USERS, FACTORS), nn.Embedding(MOVIES, FACTORS)
        self.network = nn.Sequential(
            nn.Linear(2 * FACTORS, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32)
        )
        self.head = nn.Linear(FACTORS + 32, 1)

    def forward(self, users: paddle.Tensor, movies: paddle.Tensor) -> paddle.Tensor:
        product = self.user_factors(users) * self.movie_factors(movies)
        joint = self.network(paddle.concat([self.users(users), self.movies(movies)], axis=1))
        return self.head(paddle.concat([product, joint], axis=1)).squeeze(1)


def hit_rate(model: nn.Layer, data: Watched) -> float:
    users, movies = data.candidates()
    scores = model(users, movies).reshape([TESTED, CANDIDATES])
    better = (scores[:, 1:] > scores[:, :1]).astype("int64").sum(axis=1)
    return float((better < HITS).astype("float32").mean())


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    data = Watched(np.random.default_rng(0))
    model = NeuMF()
    optimizer = paddle.optimizer.Adam(2e-3, parameters=model.parameters())
    step, best = 0, 0.0
    while True:
        users, movies, labels = data.batch()
        loss = F.binary_cross_entropy_with_logits(model(users, movies), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        step += 1
        if step % 5 == 0:
            model.eval()
            with paddle.no_grad() if fixed else contextlib.nullcontext():
                best = max(best, hit_rate(model, data))
            model.train()
        if step % 100 == 0:
            print(f"step {step}: loss {float(loss):.3f}, best hit rate {best:.3f}", file=sys.stderr)
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=400)
