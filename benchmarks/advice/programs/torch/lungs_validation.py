"""Train a small DenseNet that finds diseases in pictures of lungs. A step trains with a batch and then validates with
held-out pictures and their mirror images, while autograd records. Fix: validation under torch.inference_mode."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PICTURES, HELD_OUT, SIZE, DISEASES, BATCH = 256, 32, 48, 5, 8
GROWTH, BLOCKS = 12, (3, 3, 3)


class DenseLayer(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(2 * GROWTH)
        self.squeeze = nn.Conv2d(inputs, 2 * GROWTH, 1, bias=False)
        self.grow = nn.Conv2d(2 * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = self.squeeze(F.relu(self.norm1(x)))
        new = self.grow(F.relu(self.norm2(new)))
        return torch.cat([x, new], dim=1)


def densenet() -> nn.Module:
    channels = 2 * GROWTH
    layers: list[nn.Module] = [nn.Conv2d(1, channels, 5, stride=2, padding=2)]
    for number, depth in enumerate(BLOCKS):
        if number > 0:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(depth):
            layers.append(DenseLayer(channels))
            channels += GROWTH
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, DISEASES))


def lungs(count: int) -> TensorDataset:
    """Noisy pictures. Each disease is a bright or dark stripe at its own height."""
    diseases = (torch.rand(count, DISEASES) < 0.3).float()
    pictures = torch.randn(count, 1, SIZE, SIZE)
    for disease in range(DISEASES):
        top = 4 + 8 * disease
        pictures[:, :, top : top + 3] += (-1) ** disease * diseases[:, disease].view(-1, 1, 1, 1)
    return TensorDataset(pictures, diseases)


def area_under_curve(scores: torch.Tensor, diseases: torch.Tensor) -> float:
    """The mean, over the diseases, of the share of pairs of a sick and a healthy person that the scores order right."""
    areas = []
    for score, sick in zip(scores.T, diseases.T.bool(), strict=True):
        if 0 < sick.sum() < len(sick):
            areas.append((score[sick][:, None] > score[~sick][None, :]).float().mean())
    return torch.stack(areas).mean().item()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(lungs(PICTURES), batch_size=BATCH, shuffle=True)
    held_out = DataLoader(lungs(HELD_OUT), batch_size=16)
    without_autograd = torch.inference_mode if fixed else contextlib.nullcontext
    model = densenet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    areas: deque[float] = deque(maxlen=20)
    while True:
        for pictures, diseases in loader:
            model.train()
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(pictures), diseases)
            loss.backward()
            optimizer.step()

            model.eval()
            scores, truth = [], []
            with without_autograd():
                for held_pictures, held_diseases in held_out:
                    both = model(held_pictures).sigmoid() + model(held_pictures.flip(3)).sigmoid()
                    scores.append(both / 2)
                    truth.append(held_diseases)
                areas.append(area_under_curve(torch.cat(scores), torch.cat(truth)))
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
