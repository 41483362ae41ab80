"""Train a network that predicts from the events on a user's phone whether the user will leave. The events are nested
Python lists, as they were read from JSON, and each step makes tensors of them. Fix: numpy arrays."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

KINDS, NUMBERS, LENGTH, WIDTH, USERS, BATCH = 40, 10, 120, 48, 1500, 64


class ChurnModel(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.kinds, self.numbers = nn.Embedding(KINDS, WIDTH), nn.Linear(NUMBERS, WIDTH)
        self.convolutions = nn.Sequential(
            nn.Conv1D(WIDTH, WIDTH, 5, stride=2, padding=2), nn.ReLU(), nn.Conv1D(WIDTH, WIDTH, 5, stride=2), nn.ReLU()
        )
        self.attention = nn.Linear(WIDTH, 1)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, kinds: paddle.Tensor, numbers: paddle.Tensor) -> paddle.Tensor:
        x = F.relu(self.kinds(kinds) + self.numbers(numbers))
        x = self.convolutions(x.transpose([0, 2, 1])).transpose([0, 2, 1])
        weights = F.softmax(self.attention(x), axis=1)
        return self.head((weights * x).sum(axis=1)).squeeze(-1)


def histories() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each user: the kinds of the events, numbers that describe the events, and whether the user left."""
    rng = np.random.default_rng(0)
    labels = (rng.random(USERS) < 0.3).astype("float32")
    kinds = rng.integers(0, KINDS, (USERS, LENGTH))
    numbers = rng.standard_normal((USERS, LENGTH, NUMBERS)) + 0.3 * labels[:, None, None]
    return kinds, numbers.round(3).astype("float32"), labels


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    random.seed(0)
    kinds, numbers, labels = histories()
    kinds_list, numbers_list, labels_list = kinds.tolist(), numbers.tolist(), labels.tolist()
    model = ChurnModel()
    optimizer = paddle.optimizer.AdamW(learning_rate=1e-3, parameters=model.parameters())
    while True:
        users = random.sample(range(USERS), BATCH)
        if fixed:
            batch = [paddle.to_tensor(part[users]) for part in (kinds, numbers, labels)]
        else:
            batch = [paddle.to_tensor([part[i] for i in users]) for part in (kinds_list, numbers_list, labels_list)]
        loss = F.binary_cross_entropy_with_logits(model(*batch[:2]), batch[2])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=80)
