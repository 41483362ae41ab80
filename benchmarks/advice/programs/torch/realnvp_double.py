"""Train a normalizing flow (RealNVP) that estimates the density of a physics data set with 43 columns. Everything is in
double precision, for numerical stability. Fix: single precision."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

COLUMNS, HIDDEN, COUPLINGS, BATCH = 43, 256, 6, 256


class Coupling(nn.Module):
    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(
            nn.Linear(COLUMNS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * COLUMNS)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale, shift = self.net(x * self.mask).chunk(2, dim=1)
        scale = scale.tanh() * (1 - self.mask)
        shift = shift * (1 - self.mask)
        return x * scale.exp() + shift, scale.sum(dim=1)


class RealNVP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        even = (torch.arange(COLUMNS) % 2).float()
        self.couplings = nn.ModuleList(Coupling(even if i % 2 else 1 - even) for i in range(COUPLINGS))

    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        log_determinant = x.new_zeros(len(x))
        for coupling in self.couplings:
            x, change = coupling(x)
            log_determinant = log_determinant + change
        normal = -0.5 * (x.square() + math.log(2 * math.pi)).sum(dim=1)
        return normal + log_determinant


def measurements(rows: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(COLUMNS, COLUMNS)) / math.sqrt(COLUMNS)
    table = np.tanh(generator.normal(size=(rows, COLUMNS)) @ mixing) + 0.1 * generator.normal(size=(rows, COLUMNS))
    return (table - table.mean(axis=0)) / table.std(axis=0)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    precision = torch.float32 if fixed else torch.float64
    table = torch.from_numpy(measurements(20_000)).to(precision)
    loader = DataLoader(TensorDataset(table), batch_size=BATCH, shuffle=True, drop_last=True)
    flow = RealNVP().to(precision)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-4, weight_decay=1e-6)
    while True:
        for (rows,) in loader:
            loss = -flow.log_prob(rows).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=90)
