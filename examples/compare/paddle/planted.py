"""Regressions that can be planted in the models of this folder, and the data loader of the models.

../torch/planted.py is the same for torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.io import IterableDataset

PLANTS = ("copy", "activation", "layer", "loader")
COPIES = 200
SLEEP_S = 0.2


def copied(activations: paddle.Tensor, plant: str | None) -> paddle.Tensor:
    """Return the activations. With the regression "copy", copy them so often that the time is visible on a busy
    machine."""
    for _ in range(COPIES if plant == "copy" else 0):
        activations = activations.clone()
    return activations


def activation(fast: nn.Layer, plant: str | None) -> nn.Layer:
    """Return the activation ``fast``. With the regression "activation", return a ComposedGELU instead."""
    return ComposedGELU() if plant == "activation" else fast


class ComposedGELU(nn.Layer):
    """Compute GELU with separate operators: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), where tanh(u) is 1 − 2/(1 +
    exp(2u))."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * paddle.pow(x, 3.0))
        tanh = 1.0 - 2.0 / (1.0 + paddle.exp(2.0 * inner))
        return 0.5 * x * (1.0 + tanh)


def layers(count: int, plant: str | None) -> range:
    """Return the numbers of the layers. With the regression "layer", there is one layer more."""
    return range(count + (plant == "layer"))


class Batches(IterableDataset):
    """The same batch, repeated. With the regression "loader", each batch is slow to load."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray, plant: str | None) -> None:
        self.batch = (inputs, labels)
        self.pause_s = SLEEP_S if plant == "loader" else 0.0

    def __iter__(self) -> Iterator[Any]:
        while True:
            time.sleep(self.pause_s)
            yield self.batch
