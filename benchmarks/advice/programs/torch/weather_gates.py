"""Train a forecaster of temperatures that reads two days at many stations with a recurrent cell of its own. Its
loop multiplies an hour by the input weights in each iteration. Fix: one product for all hours before the loop."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

STATIONS, VARIABLES, HOURS, AHEAD, BATCH, HIDDEN = 64, 8, 48, 6, 16, 48
DAYS = 120


class Weather(Dataset):
    """Windows of a season's weather: daily and weekly waves with noise, at stations that the waves reach one by one."""

    def __init__(self) -> None:
        hours = torch.arange(24 * DAYS).view(-1, 1, 1)
        phases = torch.rand(1, STATIONS, VARIABLES)
        daily = torch.sin(2 * torch.pi * (hours / 24 + phases))
        weekly = torch.sin(2 * torch.pi * (hours / 168 + phases))
        self.values = daily + weekly + 0.2 * torch.randn(24 * DAYS, STATIONS, VARIABLES)

    def __len__(self) -> int:
        return 24 * DAYS - HOURS - AHEAD

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = index + HOURS
        return self.values[index:end].flatten(1), self.values[end : end + AHEAD, :, 0]


class CoupledCell(nn.Module):
    """A recurrent layer whose forget gate is the rest of its input gate."""

    def __init__(self, inputs: int, hidden: int, ahead_of_loop: bool) -> None:
        super().__init__()
        self.from_input = nn.Linear(inputs, 3 * hidden)
        self.from_hidden = nn.Linear(hidden, 3 * hidden, bias=False)
        self.hidden = hidden
        self.ahead_of_loop = ahead_of_loop

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        hidden = memory = sequence.new_zeros(len(sequence), self.hidden)
        if self.ahead_of_loop:
            sequence = self.from_input(sequence)
        outputs = []
        for now in sequence.unbind(1):
            products = now if self.ahead_of_loop else self.from_input(now)
            write, read, candidate = (products + self.from_hidden(hidden)).chunk(3, dim=1)
            memory = torch.lerp(memory, torch.tanh(candidate), torch.sigmoid(write))
            hidden = torch.sigmoid(read) * torch.tanh(memory)
            outputs.append(hidden)
        return torch.stack(outputs, dim=1)


class Forecaster(nn.Module):
    def __init__(self, ahead_of_loop: bool) -> None:
        super().__init__()
        self.recurrent = CoupledCell(STATIONS * VARIABLES, HIDDEN, ahead_of_loop)
        self.attention = nn.Linear(HIDDEN, 1)
        self.head = nn.Linear(2 * HIDDEN, AHEAD * STATIONS)

    def forward(self, weather: torch.Tensor) -> torch.Tensor:
        states = self.recurrent(weather)
        weights = torch.softmax(self.attention(states), dim=1)
        summary = torch.cat([states[:, -1], (weights * states).sum(1)], dim=1)
        return self.head(summary).view(-1, AHEAD, STATIONS)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(Weather(), batch_size=BATCH, shuffle=True)
    model = Forecaster(ahead_of_loop=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    errors: deque[float] = deque(maxlen=50)
    while True:
        for weather, temperatures in loader:
            optimizer.zero_grad()
            loss = F.l1_loss(model(weather), temperatures)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            errors.append(loss.item())
            yield


if __name__ == "__main__":
    run(training, "torch", steps=300)
