"""Train a recommender (DLRM) that predicts clicks from 13 numbers and 26 categories. A loop looks every category up in
a table of its own. Fix: one table for all categories, and one lookup with offsets."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

NUMBERS, WIDTH, BATCH = 13, 16, 256
CATEGORIES = [1460, 583, 5000, 5000, 305, 24, 5000, 633, 3, 5000, 5000, 5000, 3194]
CATEGORIES += [27, 5000, 5000, 10, 5000, 2173, 4, 5000, 18, 15, 5000, 105, 5000]


class Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, WIDTH) for size in CATEGORIES)

    def forward(self, categories: torch.Tensor) -> torch.Tensor:
        vectors = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return torch.cat(vectors, dim=1).view(len(categories), len(CATEGORIES), WIDTH)


class OneTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(sum(CATEGORIES), WIDTH)
        self.register_buffer("offsets", torch.tensor([0, *itertools.accumulate(CATEGORIES[:-1])]))

    def forward(self, categories: torch.Tensor) -> torch.Tensor:
        return self.table(categories + self.offsets)


class DLRM(nn.Module):
    def __init__(self, one_table: bool) -> None:
        super().__init__()
        self.embed = OneTable() if one_table else Tables()
        self.bottom = nn.Sequential(
            nn.Linear(NUMBERS, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU()
        )
        features = len(CATEGORIES) + 1
        self.pairs = torch.tril_indices(features, features, offset=-1)
        self.top = nn.Sequential(
            nn.Linear(WIDTH + self.pairs.shape[1], 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
        )

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(numbers)
        features = torch.cat([dense.unsqueeze(1), self.embed(categories)], dim=1)
        products = features @ features.transpose(1, 2)
        interactions = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, interactions], dim=1)).squeeze(1)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    rows = 20_480
    numbers = torch.randn(rows, NUMBERS)
    categories = torch.stack([torch.randint(size, (rows,)) for size in CATEGORIES], dim=1)
    clicks = (torch.rand(rows) < 0.25).float()
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(numbers, categories, clicks), BATCH, shuffle=True, generator=generator)
    model = DLRM(one_table=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for batch_numbers, batch_categories, batch_clicks in loader:
            logits = model(batch_numbers, batch_categories)
            loss = F.binary_cross_entropy_with_logits(logits, batch_clicks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=200)
