"""Train the policy and value network of a chess engine on positions of its own games. The positions are nested Python
lists of planes, and each step makes a tensor of a sample. Fix: NumPy arrays, and torch.from_numpy."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PIECES, MOVES, CHANNELS, BLOCKS, POSITIONS, BATCH = 12, 64 * 64, 32, 3, 1500, 64


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(),
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.layers(x))


class PolicyValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(PIECES, CHANNELS, 3, padding=1), nn.ReLU(), *(Residual() for _ in range(BLOCKS))
        )
        self.policy = nn.Sequential(nn.Conv2d(CHANNELS, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 64, MOVES))
        self.value = nn.Sequential(nn.Conv2d(CHANNELS, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1), nn.Tanh())

    def forward(self, planes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.trunk(planes)
        return self.policy(x), self.value(x).squeeze(1)


def random_position(generator: random.Random) -> list[list[list[float]]]:
    """The planes of the pieces: a one where a piece of that kind stands."""
    planes = [[[0.0] * 8 for _ in range(8)] for _ in range(PIECES)]
    for square in generator.sample(range(64), generator.randint(6, 32)):
        planes[generator.randrange(PIECES)][square // 8][square % 8] = 1.0
    return planes


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    generator = random.Random(0)
    positions = [random_position(generator) for _ in range(POSITIONS)]
    moves = [generator.randrange(MOVES) for _ in range(POSITIONS)]
    results = [float(generator.choice((-1, 0, 1))) for _ in range(POSITIONS)]
    model = PolicyValue()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    if fixed:
        position_array = np.array(positions, dtype=np.float32)
        move_array, result_array = np.array(moves), np.array(results, dtype=np.float32)
    while True:
        sample = generator.sample(range(POSITIONS), BATCH)
        if fixed:
            planes = torch.from_numpy(position_array[sample])
            played = torch.from_numpy(move_array[sample])
            outcomes = torch.from_numpy(result_array[sample])
        else:
            planes = torch.tensor([positions[i] for i in sample])
            played = torch.tensor([moves[i] for i in sample])
            outcomes = torch.tensor([results[i] for i in sample])
        policy, value = model(planes)
        loss = F.cross_entropy(policy, played) + F.mse_loss(value, outcomes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=90)
