"""Train a deep residual network on a table with many categorical columns. Adam updates the many small parameters one by
one, because the configuration of the optimizer says foreach=False. Fix: fused=True."""

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

ROWS, NUMBERS, BATCH, WIDTH, BLOCKS = 20_000, 13, 256, 64, 18
CARDINALITIES = [
    2,
    3,
    3,
    4,
    5,
    5,
    7,
    8,
    9,
    10,
    12,
    12,
    16,
    18,
    20,
    24,
    27,
    31,
    36,
    40,
    52,
    60,
    75,
    90,
    120,
    200,
    320,
    500,
]
CONFIG = {"lr": 1e-3, "betas": (0.9, 0.999), "weight_decay": 1e-5}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.dropout(F.relu(self.first(self.norm(x)))))


class TableNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [min(16, (cardinality + 1) // 2) for cardinality in CARDINALITIES]
        self.embeddings = nn.ModuleList(nn.Embedding(*pair) for pair in zip(CARDINALITIES, sizes, strict=True))
        self.project = nn.Linear(sum(sizes) + NUMBERS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        embedded = [table(column) for table, column in zip(self.embeddings, categories.unbind(1), strict=True)]
        return self.head(self.blocks(self.project(torch.cat([numbers, *embedded], dim=1)))).squeeze(1)


def make_table() -> TensorDataset:
    numbers = torch.randn(ROWS, NUMBERS)
    categories = torch.stack([torch.randint(cardinality, (ROWS,)) for cardinality in CARDINALITIES], dim=1)
    labels = (numbers.sum(dim=1) + categories[:, 0] + torch.randn(ROWS) > 0).float()
    return TensorDataset(numbers, categories, labels)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(make_table(), batch_size=BATCH, shuffle=True, drop_last=True)
    model = TableNet()
    config = {**CONFIG, **({"fused": True} if fixed else {"foreach": False})}
    optimizer = torch.optim.Adam(model.parameters(), **config)
    while True:
        for numbers, categories, labels in loader:
            loss = F.binary_cross_entropy_with_logits(model(numbers, categories), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=120)
