"""Static programs whose FLOPs are counted in tests: how each is built, its feeds, and the equal torch model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import torch
from paddle import nn
from torch import nn as torch_nn
from torch.nn import functional

N = 4
"""Number of samples."""


@dataclass(frozen=True)
class Case:
    """``loss`` builds a program from its inputs. ``model`` is the equal torch function, or the FLOPs of products."""

    loss: Callable[..., Any]
    model: Callable[..., Any] | int
    inputs: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    optimizer: Callable[[], Any] = lambda: paddle.optimizer.Adam(0.1)
    open_sizes: bool = True  # whether the program may be built without the number of samples

    def feeds(self) -> dict[str, Any]:
        return {f"x{number}": np.ones(shape, self.dtype) for number, shape in enumerate(self.inputs)}

    def build(self, open_sizes: bool) -> tuple[Any, Any, Any]:
        """Return the program, its startup program and the loss."""
        program, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.static.program_guard(program, startup):
            shapes = [(-1, *shape[1:]) if open_sizes else shape for shape in self.inputs]
            inputs = [paddle.static.data(f"x{number}", shape, self.dtype) for number, shape in enumerate(shapes)]
            loss = self.loss(*inputs)
            self.optimizer().minimize(loss)
        return program, startup, loss

    def torch_inputs(self) -> list[torch.Tensor]:
        return [torch.from_numpy(array) for array in self.feeds().values()]


def attention(functions: Any, q: Any, k: Any, v: Any, x: Any) -> Any:
    """Return self-attention with two heads by matrix products and a softmax, in either framework."""

    def heads(layer: Any) -> Any:
        return layer(x).reshape([-1, 6, 2, 8]).transpose(*functions.swapped)

    scores = functions.scores(heads(q), heads(k))
    return functions.mean(functions.matmul(functions.softmax(scores, -1), heads(v)))


class _Paddle:
    swapped = ([0, 2, 1, 3],)
    matmul, softmax, mean = paddle.matmul, nn.functional.softmax, paddle.mean

    @staticmethod
    def scores(q: Any, k: Any) -> Any:
        return paddle.matmul(q, k, transpose_y=True)


class _Torch:
    swapped = (1, 2)
    matmul, softmax, mean = torch.matmul, functional.softmax, torch.mean

    @staticmethod
    def scores(q: Any, k: Any) -> Any:
        return torch.matmul(q, k.transpose(-2, -1))


def _normalized(layers: Any, linear: Any, norm: Any, gelu: Any, embedding: Any, bias: str) -> Callable[[Any], Any]:
    model = layers(embedding(20, 12), linear(12, 16), norm(16), gelu(), linear(16, 5, **{bias: False}))
    return lambda x: model(x).mean()


CASES = {
    "perceptron": Case(
        lambda x: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))(x).mean(),
        lambda x: torch_nn.Sequential(torch_nn.Linear(6, 8), torch_nn.ReLU(), torch_nn.Linear(8, 4))(x).mean(),
        ((N, 6),),
    ),
    "perceptron on sequences": Case(
        lambda x: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))(x).mean(),
        lambda x: torch_nn.Sequential(torch_nn.Linear(6, 8), torch_nn.Tanh(), torch_nn.Linear(8, 4))(x).mean(),
        ((N, 5, 6),), optimizer=lambda: paddle.optimizer.SGD(0.1),
    ),
    # torch's counter is wrong for the backward pass of convolutions with groups. By hand: samples, positions (of the
    # input if transposed), channels, channels in a group, kernel. The gradient of the first input is not computed.
    "grouped and transposed convolutions": Case(
        lambda x: nn.Sequential(
            nn.Conv2D(4, 8, 3, groups=2, padding=1), nn.ReLU(), nn.Conv2DTranspose(8, 6, 3, stride=2, groups=2),
            nn.Conv2D(6, 3, 1),
        )(x).mean(),
        2 * N * (2 * 81 * 8 * 2 * 9 + 3 * 81 * 8 * 3 * 9 + 3 * 361 * 6 * 3), ((N, 4, 9, 9),),
        optimizer=lambda: paddle.optimizer.Momentum(0.1),
    ),
    "depthwise convolution and pooling": Case(
        lambda x: nn.Sequential(
            nn.Conv2D(8, 8, 3, stride=2, groups=8, padding=1), nn.BatchNorm2D(8), nn.MaxPool2D(2), nn.Conv2D(8, 5, 1)
        )(x).mean(),
        2 * N * (2 * 36 * 8 * 9 + 3 * 9 * 8 * 5), ((N, 8, 12, 12),),
    ),
    "convolution in 3 dimensions": Case(
        lambda x: nn.Conv3D(4, 2, 2)(nn.Conv3D(2, 4, 3, dilation=2)(x)).mean(),
        lambda x: torch_nn.Conv3d(4, 2, 2)(torch_nn.Conv3d(2, 4, 3, dilation=2)(x)).mean(),
        ((N, 2, 8, 8, 8),),
    ),
    "attention by products": Case(
        lambda x: attention(_Paddle, *(nn.Linear(16, 16) for _ in "qkv"), x),
        lambda x: attention(_Torch, *(torch_nn.Linear(16, 16) for _ in "qkv"), x),
        ((N, 6, 16),),
    ),
    "embedding and layer norm": Case(
        lambda x: _normalized(nn.Sequential, nn.Linear, nn.LayerNorm, nn.GELU, nn.Embedding, "bias_attr")(x),
        lambda x: _normalized(
            torch_nn.Sequential, torch_nn.Linear, torch_nn.LayerNorm, torch_nn.GELU, torch_nn.Embedding, "bias"
        )(x),
        ((N, 7),), dtype="int64",
    ),
    # 2 · 6 · 4 · 5 FLOPs for x ᵀ·w, whose second factor alone has a gradient, and 2 · 6 · 5 · 7 for the second product
    "transposed factors": Case(
        lambda x: (
            paddle.matmul(
                paddle.matmul(x, paddle.create_parameter([N, 5], "float32"), transpose_x=True),
                paddle.create_parameter([7, 5], "float32"), transpose_y=True,
            ).mean()
        ),
        2 * 2 * 6 * N * 5 + 3 * 2 * 6 * 5 * 7, ((N, 6),), open_sizes=False,
    ),
    "sum of products": Case(
        lambda x: paddle.addmm(paddle.create_parameter([N, 5], "float32"), x, nn.Linear(6, 5).weight).mean(),
        2 * 2 * N * 6 * 5, ((N, 6),), open_sizes=False,
    ),
    "batched products": Case(
        lambda x, y: paddle.bmm(nn.Linear(6, 6)(x), y).mean(),
        2 * 2 * N * 3 * 6 * 6 + 2 * 2 * N * 3 * 6 * 5, ((N, 3, 6), (N, 6, 5)),
    ),
    # Each weight of the inputs (6) and of the hidden states (10) of four gates takes part once at each position.
    "recurrent layer": Case(
        lambda x: nn.LSTM(6, 10)(x)[0].mean(), 3 * 2 * N * 5 * 4 * 10 * (6 + 10), ((N, 5, 6),),
    ),
    "cross entropy": Case(
        lambda x: nn.functional.cross_entropy(nn.Linear(6, 5)(x), paddle.argmax(x[:, :5], -1, keepdim=True)),
        2 * 2 * N * 6 * 5, ((N, 6),), optimizer=lambda: paddle.optimizer.AdamW(0.1),
    ),
}  # fmt: skip
