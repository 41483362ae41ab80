"""Evaluate a segmentation network: every step is one batch of the validation set. The forward pass records what a
backward pass would need. Fix: inference mode."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

IMAGE, CLASSES, CHANNELS, BATCH = 96, 8, 24, 8


def convolutions(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = convolutions(3, CHANNELS)
        self.down2 = convolutions(CHANNELS, 2 * CHANNELS)
        self.bottom = convolutions(2 * CHANNELS, 4 * CHANNELS)
        self.up2 = convolutions(6 * CHANNELS, 2 * CHANNELS)
        self.up1 = convolutions(3 * CHANNELS, CHANNELS)
        self.head = nn.Conv2d(CHANNELS, CLASSES, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        full = self.down1(images)
        half = self.down2(F.max_pool2d(full, 2))
        quarter = self.bottom(F.max_pool2d(half, 2))
        y = self.up2(torch.cat([F.interpolate(quarter, scale_factor=2), half], dim=1))
        y = self.up1(torch.cat([F.interpolate(y, scale_factor=2), full], dim=1))
        return self.head(y)


class MeanIoU:
    def __init__(self) -> None:
        self.confusion = torch.zeros(CLASSES, CLASSES, dtype=torch.long)

    def update(self, predicted: torch.Tensor, masks: torch.Tensor) -> None:
        cells = masks.flatten() * CLASSES + predicted.flatten()
        self.confusion += torch.bincount(cells, minlength=CLASSES**2).view(CLASSES, CLASSES)

    def compute(self) -> float:
        hits = self.confusion.diagonal()
        unions = self.confusion.sum(dim=0) + self.confusion.sum(dim=1) - hits
        return (hits / unions.clamp(min=1)).mean().item()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    dataset = TensorDataset(torch.rand(160, 3, IMAGE, IMAGE), torch.randint(CLASSES, (160, IMAGE, IMAGE)))
    loader = DataLoader(dataset, BATCH)
    model = UNet().eval()
    while True:
        metric, total = MeanIoU(), 0.0
        for images, masks in loader:
            with torch.inference_mode() if fixed else contextlib.nullcontext():
                logits = model(images)
                loss = F.cross_entropy(logits, masks)
            total += loss.item()
            metric.update(logits.argmax(dim=1), masks)
            yield
        print(f"validation: loss {total / len(loader):.4f}, mean IoU {metric.compute():.4f}")


if __name__ == "__main__":
    run(training, "torch", steps=60)
