"""The regressions that a model of this folder can be given, and the data with one of them.

../paddle/planted.py is the same for Paddle.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import IterableDataset

PLANTS = ("copy", "activation", "layer", "loader")
COPIES = 200
SLEEP_S = 0.2


def copied(activations: torch.Tensor, plant: str | None) -> torch.Tensor:
    """Planted "copy": the activations are copied, often enough to be seen on a busy machine."""
    for _ in range(COPIES if plant == "copy" else 0):
        activations = activations.clone()
    return activations


def activation(fast: nn.Module, plant: str | None) -> nn.Module:
    """Planted "activation": one that is made of elementary operators."""
    return ComposedGELU() if plant == "activation" else fast


class ComposedGELU(nn.Module):
    """x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))) with tanh(u) = 1 − 2/(1 + exp(2u)), an operator after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        tanh = 1.0 - 2.0 / (1.0 + torch.exp(2.0 * inner))
        return 0.5 * x * (1.0 + tanh)


def layers(count: int, plant: str | None) -> range:
    """Planted "layer": one more."""
    return range(count + (plant == "layer"))


class Batches(IterableDataset[Any]):
    """The same batch again and again. Planted "loader": each takes a while."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray, plant: str | None) -> None:
        self.batch = (inputs, labels)
        self.pause_s = SLEEP_S if plant == "loader" else 0.0

    def __iter__(self) -> Iterator[Any]:
        while True:
            time.sleep(self.pause_s)
            yield self.batch
