"""Train a residual multilayer perceptron that predicts the prices of houses from a table. The model runs in eager mode.
Fix, as often advised: torch.compile."""

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

COLUMNS, WIDTH, BLOCKS, HOUSES, BATCH = 8, 64, 8, 16_000, 256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.linear1, self.linear2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear2(F.silu(self.linear1(self.norm(x))))


class PriceModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(COLUMNS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.last = nn.Sequential(nn.LayerNorm(WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))

    def forward(self, table: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.first(table))).squeeze(1)


def houses() -> TensorDataset:
    table = torch.randn(HOUSES, COLUMNS)
    prices = table[:, 0] * table[:, 1] + table[:, 2:].sin().sum(dim=1) + 0.1 * torch.randn(HOUSES)
    return TensorDataset(table, (prices - prices.mean()) / prices.std())


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(houses(), batch_size=BATCH, shuffle=True, drop_last=True)
    model = PriceModel()
    predict = torch.compile(model) if fixed else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        for rows, prices in loader:
            loss = F.smooth_l1_loss(predict(rows), prices)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=400)
