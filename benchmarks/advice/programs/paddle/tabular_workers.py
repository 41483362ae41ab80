"""Train a classifier on a table in memory. The DataLoader reads it in the main process. Fix, as often advised: two
workers."""

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

COLUMNS, CLASSES, WIDTH, BATCH = 40, 5, 256, 512


class Table(Dataset):
    def __init__(self, rows: int) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.features = random.standard_normal((rows, COLUMNS), dtype=np.float32)
        self.labels = np.abs(self.features[:, :CLASSES]).argmax(axis=1)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.features[index], self.labels[index]

    def __len__(self) -> int:
        return len(self.labels)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Table(20_000), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2 if fixed else 0)
    model = nn.Sequential(
        nn.Linear(COLUMNS, WIDTH),
        nn.BatchNorm1D(WIDTH),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(WIDTH, WIDTH),
        nn.BatchNorm1D(WIDTH),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, CLASSES),
    )
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    while True:
        for features, labels in loader:
            loss = F.cross_entropy(model(features), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=110)
