"""Train a dilated convolutional forecaster of hourly loads. The script was written for a cluster, where each job has
one core, and sets one thread. Fix: use all cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SERIES, HOURS, HISTORY, HORIZON, WIDTH, BATCH = 16, 5000, 168, 24, 64, 32


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """All windows of the series: a week of history, and the day that follows it."""

    def __init__(self, series: torch.Tensor) -> None:
        self.series = series

    def __len__(self) -> int:
        return self.series.shape[1] - HISTORY - HORIZON

    def __getitem__(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        now = start + HISTORY
        return self.series[:, start:now], self.series[:, now : now + HORIZON]


class Residual(nn.Module):
    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.padding = 2 * dilation
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 3, dilation=dilation)
        self.mix = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(F.relu(self.convolution(F.pad(x, (self.padding, 0)))))


class Forecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv1d(SERIES, WIDTH, 1)
        self.blocks = nn.Sequential(*(Residual(2**level) for level in range(6)))
        self.head = nn.Linear(WIDTH, SERIES * HORIZON)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        last = self.blocks(self.embed(history))[:, :, -1]
        return self.head(last).view(-1, SERIES, HORIZON)


def make_series() -> torch.Tensor:
    hours = torch.arange(HOURS)
    phases = torch.rand(SERIES, 1) * 6.28
    daily, weekly = torch.sin(hours * 6.28 / 24 + phases), torch.sin(hours * 6.28 / 168 + phases)
    return daily + 0.5 * weekly + 0.1 * torch.randn(SERIES, HOURS)


def training(fixed: bool) -> Iterator[None]:
    torch.set_num_threads(len(os.sched_getaffinity(0)) if fixed else 1)
    torch.manual_seed(0)
    loader = DataLoader(Windows(make_series()), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        for history, following in loader:
            loss = F.l1_loss(model(history), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
