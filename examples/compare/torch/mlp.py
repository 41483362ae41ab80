"""A multilayer perceptron. ../paddle/mlp.py is the same model.

python mlp.py --record runs/base
python mlp.py --record runs/planted --plant copy
perfkit compare runs/base runs/planted
"""

from __future__ import annotations

import numpy as np
import torch
from planted import Batches, activation, copied, layers
from torch import nn
from training import main

BATCH, INPUTS, WIDTH, CLASSES = 4096, 64, 128, 10
LAYERS = 2


class Block(nn.Module):
    """A layer and its activation."""

    def __init__(self, plant: str | None) -> None:
        super().__init__()
        self.plant = plant
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.activation = activation(nn.ReLU(), plant)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return copied(self.activation(self.linear(x)), self.plant)


class MLP(nn.Module):
    """A multilayer perceptron with hidden layers of equal width."""

    def __init__(self, plant: str | None) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, WIDTH)
        self.blocks = nn.Sequential(*[Block(plant) for _ in layers(LAYERS, plant)])
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.first(x)))


def samples(plant: str | None) -> Batches:
    random = np.random.RandomState(0)
    return Batches(random.rand(BATCH, INPUTS).astype("float32"), random.randint(0, CLASSES, BATCH), plant)


if __name__ == "__main__":
    main(MLP, samples)
