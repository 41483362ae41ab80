"""Train a forecaster of electricity load: a day from the four days before. A loop over time calls an LSTM cell. Fix:
the LSTM layer, which gets the whole sequence."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

FEATURES, HISTORY, HORIZON, HIDDEN, BATCH = 7, 96, 24, 64, 32


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, series: torch.Tensor) -> None:
        self.series = series

    def __len__(self) -> int:
        return len(self.series) - HISTORY - HORIZON

    def __getitem__(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = start + HISTORY
        return self.series[start:end], self.series[end : end + HORIZON, 0]


class CellForecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(FEATURES, HIDDEN)
        self.head = nn.Linear(HIDDEN, HORIZON)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.new_zeros(len(x), HIDDEN)
        memory = x.new_zeros(len(x), HIDDEN)
        for t in range(x.shape[1]):
            hidden, memory = self.cell(x[:, t], (hidden, memory))
        return self.head(hidden)


class LayerForecaster(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, HORIZON)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.lstm(x)
        return self.head(outputs[:, -1])


def hourly_load(hours: int) -> torch.Tensor:
    time = torch.arange(hours).unsqueeze(1)
    phases = torch.rand(FEATURES) * 2 * math.pi
    daily, weekly = torch.sin(2 * math.pi * time / 24 + phases), torch.sin(2 * math.pi * time / 168 + phases)
    return daily + 0.5 * weekly + 0.3 * torch.randn(hours, FEATURES)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(Windows(hourly_load(8760)), BATCH, shuffle=True)
    model = LayerForecaster() if fixed else CellForecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for history, future in loader:
            loss = F.mse_loss(model(history), future)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=120)
