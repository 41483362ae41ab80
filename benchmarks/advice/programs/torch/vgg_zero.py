"""Train a VGG-like classifier of 32x32 images. The gradients are filled with zeros before each backward pass. Fix: set
them to None."""

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

CLASSES, BATCH = 10, 16
PLAN = [32, "pool", 64, "pool", 128, 128, "pool", 256, 256, "pool", 256, 256, "pool"]


class Vgg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for entry in PLAN:
            if entry == "pool":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(channels, entry, 3, padding=1), nn.BatchNorm2d(entry), nn.ReLU(inplace=True)]
                channels = entry
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(256, 1024),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(1024, 1024),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(1024, CLASSES),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    images = TensorDataset(torch.randn(1600, 3, 32, 32), torch.randint(CLASSES, (1600,)))
    loader = DataLoader(images, batch_size=BATCH, shuffle=True)
    model = Vgg()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    while True:
        for inputs, labels in loader:
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad(set_to_none=fixed)
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
