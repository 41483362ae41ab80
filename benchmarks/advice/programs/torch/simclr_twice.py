"""Train an encoder of 32x32 images without labels (SimCLR). The encoder runs on the two views of the images for the
loss, and again to log how well the features of the views agree. Fix: log the features of the first run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

IMAGES, SIZE, FEATURES, PROJECTION, TEMPERATURE, BATCH = 2000, 32, 128, 64, 0.5, 32


def convolution(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()
    )


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            convolution(3, 32, 1), convolution(32, 32, 2), convolution(32, 64, 1), convolution(64, FEATURES, 2)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images).mean(dim=(2, 3))


def augment(images: torch.Tensor) -> torch.Tensor:
    """Shift the batch by a few pixels, mirror half of it, and change the contrast and brightness of each image."""
    images = torch.roll(images, tuple(torch.randint(-4, 5, (2,)).tolist()), dims=(2, 3))
    mirrored = torch.rand(len(images), 1, 1, 1) < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    contrast = 0.6 + 0.8 * torch.rand(len(images), 1, 1, 1)
    return images * contrast + 0.2 * torch.randn(len(images), 1, 1, 1)


def contrastive_loss(projections: torch.Tensor) -> torch.Tensor:
    """The loss NT-Xent; the first half of the projections are of the first views."""
    normal = F.normalize(projections, dim=1)
    similarity = normal @ normal.T / TEMPERATURE
    similarity = similarity.masked_fill(torch.eye(len(normal), dtype=torch.bool), float("-inf"))
    partners = torch.arange(len(normal)).roll(len(normal) // 2)
    return F.cross_entropy(similarity, partners)


def alignment(features: torch.Tensor) -> torch.Tensor:
    first, second = F.normalize(features, dim=1).chunk(2)
    return (first - second).square().sum(dim=1).mean()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    images = torch.rand(IMAGES, 3, SIZE, SIZE)
    encoder = Encoder()
    projector = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, PROJECTION))
    optimizer = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)
    alignments = []
    while True:
        batch = images[torch.randint(IMAGES, (BATCH,))]
        views = torch.cat([augment(batch), augment(batch)])
        features = encoder(views)
        loss = contrastive_loss(projector(features))
        if fixed:
            logged = features.detach()
        else:
            with torch.no_grad():
                logged = encoder(views)
        alignments.append(alignment(logged))
        if len(alignments) == 100:
            print(f"alignment {torch.stack(alignments).mean():.4f}", file=sys.stderr)
            alignments.clear()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
