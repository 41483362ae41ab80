"""Floating point operations of one call of a layer, from shapes: matrix products and convolutions, two for each
multiplication with addition. Everything else (biases, norms, activations) counts nothing, as common counters have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def linear(input_shape: Sequence[int], outputs: int) -> int:
    """A matrix product with the last dimension of the input, to ``outputs`` features."""
    return 2 * math.prod(input_shape) * outputs


def bilinear(first_shape: Sequence[int], second_features: int, outputs: int) -> int:
    """x1ᵀ·A·x2 for each of ``outputs`` matrices A."""
    return 2 * math.prod(first_shape) * second_features * outputs


def convolution(positions: Sequence[int], channels: int, kernel: Sequence[int]) -> int:
    """``positions``: shape of the output (transposed: of the input), channels included. ``channels``: those of one
    group on the other side."""
    return 2 * math.prod(positions) * channels * math.prod(kernel)


def attention(query: Sequence[int], keys: int) -> int:
    """Scores and weighted sum of all heads together. ``query``: shape (batch, length, width) after projection;
    ``keys``: how many positions each query sees."""
    return 4 * math.prod(query) * keys


def recurrent(tokens: int, gates: int, inputs: int, hidden: int, layers: int, directions: int, output: int) -> int:
    """``tokens``: batch × length. The layers above the first see the outputs of all directions; ``output`` is what one
    direction puts out (``hidden``, if it is not projected)."""
    first = gates * hidden * (inputs + output)
    others = gates * hidden * (directions * output + output) * (layers - 1)
    projected = hidden * output * layers if output != hidden else 0
    return 2 * tokens * directions * (first + others + projected)
