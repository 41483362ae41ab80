"""A small convolutional network for images. ../paddle/conv_net.py is the same model.

python conv_net.py --record runs/base
python conv_net.py --record runs/planted --plant layer
perfkit compare runs/base runs/planted
"""

from __future__ import annotations

import numpy as np
import torch
from planted import Batches, activation, copied, layers
from torch import nn
from training import main

BATCH, SIDE, CHANNELS, CLASSES = 32, 32, 16, 10
LAYERS = 2
LEARNING_RATE = 0.001
"""With 0.01, the loss rises at first, and rounding errors grow by a factor of 1000 in ten steps."""


class Block(nn.Module):
    """A convolution, a normalisation and an activation."""

    def __init__(self, plant: str | None) -> None:
        super().__init__()
        self.plant = plant
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(CHANNELS)
        self.activation = activation(nn.ReLU(), plant)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return copied(self.activation(self.norm(self.conv(x))), self.plant)


class ConvNet(nn.Module):
    """Convolutions of equal size, followed by a classifier."""

    def __init__(self, plant: str | None) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(*[Block(plant) for _ in layers(LAYERS, plant)])
        self.pool = nn.MaxPool2d(4)
        self.last = nn.Linear(CHANNELS * (SIDE // 4) ** 2, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.pool(self.blocks(self.first(x))).flatten(1))


def samples(plant: str | None) -> Batches:
    random = np.random.RandomState(0)
    return Batches(random.rand(BATCH, 3, SIDE, SIDE).astype("float32"), random.randint(0, CLASSES, BATCH), plant)


if __name__ == "__main__":
    main(ConvNet, samples, LEARNING_RATE)
