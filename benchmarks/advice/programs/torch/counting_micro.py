"""Train a network that counts the people in a picture, by the density of their heads. A step accumulates the gradients
of eight batches of two pictures. Fix: one batch of 16 pictures."""

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

PICTURES, SIZE, STEP_PICTURES = 256, 64, 16


class CrowdCounter(nn.Module):
    """A front end that halves the picture twice, and dilated convolutions that see the surroundings of a head."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.back = nn.Sequential(
            nn.Conv2d(32, 64, 3, padding=2, dilation=2),
            nn.ReLU(),
            nn.Conv2d(64, 32, 3, padding=2, dilation=2),
            nn.ReLU(),
            nn.Conv2d(32, 1, 1),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.back(self.front(pictures)).squeeze(1)


def crowds() -> TensorDataset:
    """Pictures of bright spots, and the number of spots in each square of 4x4 pixels."""
    heads = (torch.rand(PICTURES, 1, SIZE, SIZE) < 0.01).float()
    spots = F.avg_pool2d(heads, 5, stride=1, padding=2) * 25
    density = F.avg_pool2d(heads, 4).squeeze(1) * 16
    return TensorDataset(spots + 0.1 * torch.randn_like(spots), density)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    batch = STEP_PICTURES if fixed else 2
    accumulated = STEP_PICTURES // batch
    loader = DataLoader(crowds(), batch_size=batch, shuffle=True)
    model = CrowdCounter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for number, (pictures, density) in enumerate(loader, start=1):
            loss = F.mse_loss(model(pictures), density) / accumulated
            loss.backward()
            if number % accumulated == 0:
                optimizer.step()
                optimizer.zero_grad()
                yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
