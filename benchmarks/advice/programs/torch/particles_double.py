"""Train an equivariant network that predicts where charged particles move. The data come from a simulation in numpy,
and so the data and the model are in float64. Fix: convert the data to float32, and leave the model in float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SYSTEMS, PARTICLES, WIDTH, LAYERS, BATCH = 768, 10, 48, 3, 24


def simulate() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions, velocities and charges of systems of particles, and their positions some time later."""
    rng = np.random.default_rng(0)
    start = rng.normal(size=(SYSTEMS, PARTICLES, 3))
    velocities = 0.5 * rng.normal(size=(SYSTEMS, PARTICLES, 3))
    charges = rng.choice([-1.0, 1.0], size=(SYSTEMS, PARTICLES, 1))
    positions, moving = start.copy(), velocities.copy()
    for _ in range(40):
        apart = positions[:, :, None] - positions[:, None]
        cubes = ((apart**2).sum(-1, keepdims=True) + 0.1) ** 1.5
        forces = (charges[:, :, None] * charges[:, None] * apart / cubes).sum(2)
        moving += 0.02 * forces
        positions += 0.02 * moving
    return start, velocities, charges, positions


def perceptron(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class EquivariantLayer(nn.Module):
    """Messages depend on distances only. Positions move along the differences of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.message = perceptron(2 * WIDTH + 2, WIDTH, WIDTH)
        self.push = nn.Sequential(perceptron(WIDTH, WIDTH), nn.Linear(WIDTH, 1, bias=False))
        self.drift = nn.Sequential(perceptron(WIDTH, WIDTH), nn.Linear(WIDTH, 1))
        self.update = nn.Sequential(perceptron(2 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))

    def forward(
        self, states: torch.Tensor, positions: torch.Tensor, velocities: torch.Tensor, charges: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        apart = positions[:, :, None] - positions[:, None]
        distances = apart.square().sum(-1, keepdim=True)
        products = charges[:, :, None] * charges[:, None]
        mine = states[:, :, None].expand(-1, -1, PARTICLES, -1)
        messages = self.message(torch.cat([mine, mine.transpose(1, 2), distances, products], dim=-1))
        pushes = apart / (distances + 1).sqrt() * self.push(messages)
        positions = positions + pushes.mean(2) + self.drift(states) * velocities
        return states + self.update(torch.cat([states, messages.sum(2)], dim=-1)), positions


class EquivariantNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(2, WIDTH)
        self.layers = nn.ModuleList(EquivariantLayer() for _ in range(LAYERS))

    def forward(self, positions: torch.Tensor, velocities: torch.Tensor, charges: torch.Tensor) -> torch.Tensor:
        states = self.embedding(torch.cat([velocities.norm(dim=-1, keepdim=True), charges], dim=-1))
        for layer in self.layers:
            states, positions = layer(states, positions, velocities, charges)
        return positions


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    arrays = simulate()
    model = EquivariantNetwork()
    if fixed:
        arrays = tuple(array.astype(np.float32) for array in arrays)
    else:
        model = model.double()
    loader = DataLoader(TensorDataset(*map(torch.from_numpy, arrays)), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    errors = []
    while True:
        for positions, velocities, charges, later in loader:
            loss = F.mse_loss(model(positions, velocities, charges), later)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            errors.append(loss.detach())
            yield


if __name__ == "__main__":
    run(training, "torch", steps=240)
