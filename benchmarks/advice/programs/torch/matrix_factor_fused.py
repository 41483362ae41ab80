"""Factorize a matrix of ratings with two large embedding tables, whose gradients are dense. Adam has its default
implementation. Fix: fused=True."""

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

USERS, ITEMS, FACTORS, RATINGS, BATCH = 30_000, 12_000, 64, 200_000, 1024


class MatrixFactorization(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, FACTORS), nn.Embedding(ITEMS, FACTORS)
        self.user_bias, self.item_bias = nn.Embedding(USERS, 1), nn.Embedding(ITEMS, 1)
        self.mean = nn.Parameter(torch.tensor(3.5))
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.05)
        for table in (self.user_bias, self.item_bias):
            nn.init.zeros_(table.weight)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        match = (self.users(users) * self.items(items)).sum(dim=1)
        return self.mean + match + self.user_bias(users).squeeze(1) + self.item_bias(items).squeeze(1)


def make_ratings() -> TensorDataset:
    users, items = torch.randint(USERS, (RATINGS,)), torch.randint(ITEMS, (RATINGS,))
    return TensorDataset(users, items, torch.randint(1, 6, (RATINGS,)).float())


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(make_ratings(), batch_size=BATCH, shuffle=True)
    model = MatrixFactorization()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True if fixed else None)
    while True:
        for users, items, ratings in loader:
            loss = F.mse_loss(model(users, items), ratings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
