"""Regressions that can be planted in the models of this folder, and the data loader of the models.

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
    """Return the activations. With the regression "copy", copy them so often that the time is visible on a busy
    machine."""
    for _ in range(COPIES if plant == "copy" else 0):
        activations = activations.clone()
    return activations


def activation(fast: nn.Module, plant: str | None) -> nn.Module:
    """Return the activation ``fast``. With the regression "activation", return a ComposedGELU instead."""
    return ComposedGELU() if plant == "activation" else fast


class ComposedGELU(nn.Module):
    """Compute GELU with separate operators: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), where tanh(u) is 1 − 2/(1 +
    exp(2u))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        tanh = 1.0 - 2.0 / (1.0 + torch.exp(2.0 * inner))
        return 0.5 * x * (1.0 + tanh)


def layers(count: int, plant: str | None) -> range:
    """Return the numbers of the layers. With the regression "layer", there is one layer more."""
    return range(count + (plant == "layer"))


class Batches(IterableDataset[Any]):
    """The same batch, repeated. With the regression "loader", each batch is slow to load."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray, plant: str | None) -> None:
        self.batch = (inputs, labels)
        self.pause_s = SLEEP_S if plant == "loader" else 0.0

    def __iter__(self) -> Iterator[Any]:
        while True:
            time.sleep(self.pause_s)
            yield self.batch
