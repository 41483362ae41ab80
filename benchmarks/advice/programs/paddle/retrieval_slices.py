"""Train a two-tower model for retrieval. A small loop takes three slices of the features of each item: its title, its
picture and its metadata. Fix, as often advised: ``paddle.split``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

USERS, ITEMS, HISTORY, PARTS, PART, WIDTH, BATCH = 2000, 5000, 20, 3, 64, 128, 256


class UserTower(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(2 * WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, users: paddle.Tensor, history: paddle.Tensor) -> paddle.Tensor:
        x = paddle.concat([self.users(users), self.items(history).mean(axis=1)], axis=1)
        return F.normalize(self.mlp(x))


class ItemTower(nn.Layer):
    def __init__(self, split: bool) -> None:
        super().__init__()
        self.split = split
        self.encoders = nn.LayerList([nn.Linear(PART, WIDTH) for _ in range(PARTS)])
        self.mlp = nn.Sequential(nn.Linear(PARTS * WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, features: paddle.Tensor) -> paddle.Tensor:
        if self.split:
            parts = paddle.split(features, PARTS, axis=1)
        else:
            parts = [features[:, i * PART : (i + 1) * PART] for i in range(PARTS)]
        encoded = [F.relu(encoder(part)) for encoder, part in zip(self.encoders, parts, strict=True)]
        return F.normalize(self.mlp(paddle.concat(encoded, axis=1)))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    features = paddle.randn([ITEMS, PARTS * PART])
    histories = paddle.randint(0, ITEMS, [USERS, HISTORY])
    user_tower, item_tower = UserTower(), ItemTower(split=fixed)
    parameters = user_tower.parameters() + item_tower.parameters()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=parameters)
    targets = paddle.arange(BATCH)
    while True:
        users, items = paddle.randint(0, USERS, [BATCH]), paddle.randint(0, ITEMS, [BATCH])
        scores = paddle.matmul(user_tower(users, histories[users]), item_tower(features[items]), transpose_y=True)
        loss = F.cross_entropy(scores / 0.05, targets)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=80)
