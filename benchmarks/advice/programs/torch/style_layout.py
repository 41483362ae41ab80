"""Train a light network that transfers a style to photographs: depthwise and 1x1 convolutions with instance norm. Its
images and weights have the layout NCHW. Fix: channels_last."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WIDTH, SIZE, BATCH, BLOCKS, PHOTOS = 32, 64, 4, 4, 64
CONTENT_WEIGHT, STYLE_WEIGHT = 1.0, 100.0


def separable(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride=stride, padding=1, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.InstanceNorm2d(outputs, affine=True),
        nn.ReLU(),
    )


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(separable(width, width), separable(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def make_transfer() -> nn.Sequential:
    return nn.Sequential(
        separable(3, WIDTH),
        separable(WIDTH, 2 * WIDTH, stride=2),
        *(Residual(2 * WIDTH) for _ in range(BLOCKS)),
        nn.Upsample(scale_factor=2),
        separable(2 * WIDTH, WIDTH),
        nn.Conv2d(WIDTH, 3, 1),
        nn.Sigmoid(),
    )


class Features(nn.Module):
    """The fixed network whose features define the content and the style of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([separable(3, WIDTH), separable(WIDTH, 2 * WIDTH, stride=2)])
        self.requires_grad_(False)

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        features = []
        for stage in self.stages:
            images = stage(images)
            features.append(images)
        return features


def gram(features: torch.Tensor) -> torch.Tensor:
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.shape[2]


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    layout = torch.channels_last if fixed else torch.contiguous_format
    photos = F.interpolate(torch.rand(PHOTOS, 3, 16, 16), size=SIZE, mode="bilinear")
    style = F.interpolate(torch.rand(1, 3, 32, 32), size=SIZE).to(memory_format=layout)
    transfer, describe = make_transfer().to(memory_format=layout), Features().to(memory_format=layout)
    with torch.no_grad():
        style_grams = [gram(features) for features in describe(style)]
    optimizer = torch.optim.Adam(transfer.parameters(), lr=1e-3)
    while True:
        for rows in torch.randperm(PHOTOS).split(BATCH):
            images = photos[rows].to(memory_format=layout)
            painted = describe(transfer(images))
            with torch.no_grad():
                content = describe(images)[-1]
            loss = CONTENT_WEIGHT * F.mse_loss(painted[-1], content)
            for features, style_gram in zip(painted, style_grams, strict=True):
                loss = loss + STYLE_WEIGHT * F.mse_loss(gram(features), style_gram.expand(BATCH, -1, -1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
