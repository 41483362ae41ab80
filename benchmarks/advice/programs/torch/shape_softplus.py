"""Train a network that is a shape: it maps a point in space to the point's distance from the surface. Its smooth
activation is a formula of many elementwise operators. Fix: the softplus function of the library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

POINTS, WIDTH, LAYERS, FREQUENCIES, SHARPNESS = 4096, 96, 5, 5, 100.0

Activation = Callable[[torch.Tensor], torch.Tensor]


def smooth_relu(x: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(b * x)) / b, in the form that does not overflow."""
    return torch.clamp(x, min=0) + torch.log(1 + torch.exp(-SHARPNESS * torch.abs(x))) / SHARPNESS


def library_softplus(x: torch.Tensor) -> torch.Tensor:
    return F.softplus(x, beta=SHARPNESS)


class Encoding(nn.Module):
    """Sines and cosines of the coordinates at several frequencies."""

    frequencies: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.pi * 2.0 ** torch.arange(FREQUENCIES))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        angles = (points.unsqueeze(-1) * self.frequencies).flatten(1)
        return torch.cat([points, angles.sin(), angles.cos()], dim=1)


class Distance(nn.Module):
    def __init__(self, activation: Activation) -> None:
        super().__init__()
        encoded = 3 + 6 * FREQUENCIES
        self.encoding = Encoding()
        self.first = nn.Linear(encoded, WIDTH)
        self.hidden = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS - 1))
        self.skip = nn.Linear(encoded, WIDTH, bias=False)
        self.last = nn.Linear(WIDTH, 1)
        self.activation = activation

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        encoded = self.encoding(points)
        x = self.activation(self.first(encoded))
        for number, layer in enumerate(self.hidden, start=1):
            x = layer(x)
            if number == LAYERS // 2:
                x = x + self.skip(encoded)
            x = self.activation(x)
        return self.last(x).squeeze(1)


def distance_to_torus(points: torch.Tensor) -> torch.Tensor:
    ring = torch.hypot(points[:, 0], points[:, 1]) - 0.5
    return torch.hypot(ring, points[:, 2]) - 0.2


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Points, half of them close to the surface, and their distances."""
    while True:
        anywhere = 2 * torch.rand(POINTS // 2, 3) - 1
        around, across = 2 * torch.pi * torch.rand(2, POINTS // 2)
        radius = 0.5 + 0.2 * across.cos()
        surface = torch.stack([radius * around.cos(), radius * around.sin(), 0.2 * across.sin()], dim=1)
        points = torch.cat([anywhere, surface + 0.02 * torch.randn_like(surface)])
        yield points, distance_to_torus(points)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    model = Distance(library_softplus if fixed else smooth_relu)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    for points, distances in batches():
        optimizer.zero_grad()
        predicted = model(points)
        loss = F.l1_loss(predicted.clamp(-0.1, 0.1), distances.clamp(-0.1, 0.1))
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=150)
