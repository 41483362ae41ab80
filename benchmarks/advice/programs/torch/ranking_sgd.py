"""Train a ranking model for a shop (wide, deep and cross). SGD with momentum updates its 80 parameters one by one,
because the configuration of the optimizer says foreach=False. Fix: fused=True."""

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

NUMBERS, WIDTH, HIDDEN, CROSSES, LAYERS, ROWS, BATCH = 13, 12, 128, 3, 6, 30_000, 256
FIELD_SIZES = [7, 12, 24, 31, 50, 60, 75, 96, 100, 110, 128, 140, 150, 180, 200, 220, 240, 250, 300, 320, 400, 500, 600]
FLAT = NUMBERS + len(FIELD_SIZES) * WIDTH


class WideDeepCross(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.ModuleList(nn.Embedding(size, 1) for size in FIELD_SIZES)
        self.fields = nn.ModuleList(nn.Embedding(size, WIDTH) for size in FIELD_SIZES)
        self.wide_numbers = nn.Linear(NUMBERS, 1)
        self.crosses = nn.ModuleList(nn.Linear(FLAT, 1) for _ in range(CROSSES))
        self.deep = nn.Sequential()
        for layer in range(LAYERS):
            self.deep.append(nn.Linear(HIDDEN if layer else FLAT, HIDDEN))
            self.deep.append(nn.LayerNorm(HIDDEN))
            self.deep.append(nn.ReLU())
        self.out = nn.Linear(FLAT + HIDDEN, 1)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        columns = categories.unbind(dim=1)
        embedded = [field(column) for field, column in zip(self.fields, columns, strict=True)]
        wide = [field(column) for field, column in zip(self.wide, columns, strict=True)]
        x = torch.cat([numbers, *embedded], dim=1)
        crossed = x
        for cross in self.crosses:
            crossed = x * cross(crossed) + crossed
        score = self.out(torch.cat([crossed, self.deep(x)], dim=1))
        return (score + self.wide_numbers(numbers) + torch.cat(wide, dim=1).sum(dim=1, keepdim=True)).squeeze(1)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    categories = torch.stack([torch.randint(size, (ROWS,)) for size in FIELD_SIZES], dim=1)
    table = TensorDataset(torch.randn(ROWS, NUMBERS), categories, (torch.rand(ROWS) < 0.2).float())
    loader = DataLoader(table, batch_size=BATCH, shuffle=True, drop_last=True)
    model = WideDeepCross()
    implementation = {"fused": True} if fixed else {"foreach": False}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, **implementation)
    while True:
        for numbers, fields, bought in loader:
            loss = F.binary_cross_entropy_with_logits(model(numbers, fields), bought)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=200)
