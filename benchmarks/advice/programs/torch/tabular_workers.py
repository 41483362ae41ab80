"""Train a multilayer perceptron on a table that is in memory as tensors. The data loader has no worker processes. Fix:
two persistent workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ROWS, COLUMNS, CLASSES, WIDTH, BATCH = 50_000, 54, 7, 512, 256


def make_table() -> TensorDataset:
    rows = torch.randn(ROWS, COLUMNS)
    return TensorDataset(rows, (rows @ torch.randn(COLUMNS, CLASSES)).argmax(dim=1))


def make_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(COLUMNS, WIDTH),
        nn.BatchNorm1d(WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.BatchNorm1d(WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.BatchNorm1d(WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, CLASSES),
    )


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(
        make_table(),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=2 if fixed else 0,
        persistent_workers=fixed,
    )
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    while True:
        for rows, labels in loader:
            loss = F.cross_entropy(model(rows), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield
        scheduler.step()


if __name__ == "__main__":
    run(training, "torch", steps=150)
