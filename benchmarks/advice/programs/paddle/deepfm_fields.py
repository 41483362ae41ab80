"""Train DeepFM, which predicts the clicks on advertisements. Each categorical field has its own embedding, and a loop
looks the fields up one after the other. Fix: one embedding for all fields, with an offset for each field."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

FIELD_SIZES = (24, 7, 7, 2800, 3200, 26, 4000, 350, 28, 5000, 6000, 3500, 5, 4, 2400, 8, 9, 430, 4, 68, 170, 60)
WIDTH, HIDDEN, BATCH = 16, 128, 512


class Embeddings(nn.Layer):
    """Looks up a row of numbers for each field: [batch, fields] to [batch, fields, width]."""

    def __init__(self, width: int, one_table: bool) -> None:
        super().__init__()
        self.one_table = one_table
        if one_table:
            self.tables = nn.LayerList([nn.Embedding(sum(FIELD_SIZES), width)])
            offsets = np.cumsum((0, *FIELD_SIZES[:-1]))
            self.register_buffer("offsets", paddle.to_tensor(offsets))
        else:
            self.tables = nn.LayerList([nn.Embedding(size, width) for size in FIELD_SIZES])

    def forward(self, fields: paddle.Tensor) -> paddle.Tensor:
        if self.one_table:
            return self.tables[0](fields + self.offsets)
        return paddle.stack([table(fields[:, i]) for i, table in enumerate(self.tables)], axis=1)


class DeepFM(nn.Layer):
    def __init__(self, one_table: bool) -> None:
        super().__init__()
        self.linear, self.embeddings = Embeddings(1, one_table), Embeddings(WIDTH, one_table)
        self.mlp = nn.Sequential(
            nn.Linear(len(FIELD_SIZES) * WIDTH, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 1),
        )

    def forward(self, fields: paddle.Tensor) -> paddle.Tensor:
        x = self.embeddings(fields)
        pairs = 0.5 * (x.sum(axis=1) ** 2 - (x**2).sum(axis=1)).sum(axis=1, keepdim=True)
        return self.linear(fields).sum(axis=1) + pairs + self.mlp(x.flatten(1))


def clicks(count: int) -> TensorDataset:
    rng = np.random.default_rng(0)
    fields = np.stack([(size * rng.random(count) ** 3).astype("int64") for size in FIELD_SIZES], axis=1)
    labels = (rng.random((count, 1)) < 0.17).astype("float32")
    return TensorDataset([paddle.to_tensor(fields), paddle.to_tensor(labels)])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(clicks(20_480), batch_size=BATCH, shuffle=True, drop_last=True)
    model = DeepFM(one_table=fixed)
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=model.parameters())
    while True:
        for fields, labels in loader:
            loss = F.binary_cross_entropy_with_logits(model(fields), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=100)
