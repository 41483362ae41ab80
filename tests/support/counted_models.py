"""Models and layers whose FLOPs are counted in tests, with the shape of their input."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

Case = tuple[Callable[[], nn.Module], tuple[int, ...]]


class Function(nn.Module):
    """A module that calls a function with the parameters of the given shapes and the input."""

    def __init__(self, function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.weights)


class First(nn.Module):
    """The first result of a module, such as the output of a recurrent layer."""

    def __init__(self, inner: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(*(x,) * self.times)[0]


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


class Heads(nn.Module):
    """Self-attention by torch's fused function. Keys and values may have fewer heads than queries."""

    def __init__(self, width: int, heads: int, kv_heads: int, **options: Any) -> None:
        super().__init__()
        self.size, self.heads, self.kv_heads, self.options = width // heads, heads, kv_heads, options
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(width, kv_heads * self.size) for _ in "kv")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, heads, self.size).transpose(1, 2)
            for layer, heads in ((self.q, self.heads), (self.k, self.kv_heads), (self.v, self.kv_heads))
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, enable_gqa=self.heads != self.kv_heads, **self.options)
        return self.o(mixed.transpose(1, 2).reshape(batch, length, -1))


def mlp(*sizes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def conv_net(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2), norm(16),
        nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


COUNTED: dict[str, Case] = {
    "linear": (lambda: nn.Linear(12, 7), (5, 12)),
    "linear without bias": (lambda: nn.Linear(12, 7, bias=False), (5, 12)),
    "linear on a batch of sequences": (lambda: nn.Linear(12, 7), (3, 5, 12)),
    "linear on a vector": (lambda: nn.Linear(12, 7), (12,)),
    "mlp": (lambda: mlp(8, 32, 16, 4), (6, 8)),
    "bilinear": (lambda: Function(lambda x, w: torch.einsum("bi,oij,bj->bo", x, w, x), (3, 6, 6)), (5, 6)),
    "linear of two inputs": (
        lambda: Function(lambda x, a, b: functional.linear(x, a) + functional.linear(x, b), (4, 8), (4, 8)),
        (5, 8),
    ),
    "batch times matrix": (lambda: Function(lambda x, w: x @ w, (8, 3)), (2, 5, 8)),
    "batch times batch": (lambda: Function(lambda x, w: x @ w, (4, 8, 3)), (4, 5, 8)),
    "broadcast batches": (lambda: Function(lambda x, w: x @ w, (1, 4, 8, 3)), (2, 4, 5, 8)),
    "bmm": (lambda: Function(torch.bmm, (4, 8, 3)), (4, 5, 8)),
    "baddbmm": (lambda: Function(lambda x, w, b: torch.baddbmm(b, x, w), (4, 8, 3), (4, 5, 3)), (4, 5, 8)),
    "addmm": (lambda: Function(lambda x, w, b: torch.addmm(b, x, w), (8, 3), (5, 3)), (5, 8)),
    "einsum of heads": (
        lambda: Function(lambda x, w: torch.einsum("bhqd,bhkd->bhqk", x, w), (2, 3, 7, 8)),
        (2, 3, 5, 8),
    ),
    "outer product": (lambda: Function(lambda x, w: torch.outer(x, w) @ w[:, None], (6,)), (6,)),
    "tensordot": (lambda: Function(lambda x, w: torch.tensordot(x, w, dims=2), (4, 5, 3)), (2, 4, 5)),
    "multi_dot": (lambda: Function(lambda x, a, b: torch.linalg.multi_dot([x, a, b]), (6, 5), (5, 4)), (3, 6)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 15)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3), (2, 3, 10, 11)),
    "conv2d without bias": (lambda: nn.Conv2d(3, 8, 3, bias=False), (2, 3, 10, 11)),
    "conv2d with stride and padding": (lambda: nn.Conv2d(3, 8, (3, 5), stride=(2, 3), padding=(1, 2)), (2, 3, 10, 11)),
    "conv2d with dilation": (lambda: nn.Conv2d(3, 8, 3, dilation=2, padding=1), (2, 3, 10, 11)),
    "conv2d that keeps the size": (lambda: nn.Conv2d(3, 8, 3, padding="same"), (2, 3, 10, 11)),
    "conv2d of one image": (lambda: nn.Conv2d(3, 8, 3), (3, 10, 11)),
    "conv2d of patches": (lambda: nn.Conv2d(3, 8, 4, stride=4), (2, 3, 16, 16)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3, padding=1), (2, 2, 5, 6, 7)),
    "pointwise conv": (lambda: nn.Conv2d(8, 16, 1), (2, 8, 9, 9)),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 9)),
    "transposed conv2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 7, 8)),
    "transposed conv3d": (lambda: nn.ConvTranspose3d(2, 3, 2), (1, 2, 4, 5, 6)),
    "conv net with batch norm": (lambda: conv_net(nn.BatchNorm2d), (2, 3, 16, 16)),
    "conv net with group norm": (lambda: conv_net(lambda c: nn.GroupNorm(4, c)), (2, 3, 16, 16)),
    "conv net with instance norm": (lambda: conv_net(lambda c: nn.InstanceNorm2d(c, affine=True)), (2, 3, 16, 16)),
    "residual block": (
        lambda: Residual(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1)),
        (2, 6, 8, 8),
    ),
    "autoencoder": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.ConvTranspose2d(4, 1, 3, 2)),
        (2, 1, 9, 9),
    ),
    "attention": (lambda: Heads(32, 4, 4), (2, 10, 32)),
    "attention with grouped queries": (lambda: Heads(32, 4, 2), (2, 10, 32)),
    "attention with one key head": (lambda: Heads(32, 4, 1), (2, 10, 32)),
    "attention with a mask": (lambda: Heads(32, 4, 4, attn_mask=torch.zeros(10, 10)), (2, 10, 32)),
    "attention with dropout": (lambda: Heads(32, 4, 4, dropout_p=0.1), (2, 10, 32)),
    "cross attention": (
        lambda: Function(lambda x, k, v: functional.scaled_dot_product_attention(x, k, v), (2, 4, 7, 8), (2, 4, 7, 8)),
        (2, 4, 5, 8),
    ),
    "attention with wide values": (
        lambda: Function(lambda x, k, v: functional.scaled_dot_product_attention(x, k, v), (2, 4, 7, 8), (2, 4, 7, 12)),
        (2, 4, 5, 8),
    ),
    "attention by hand": (lambda: Function(lambda x, k: (x @ k.mT).softmax(-1) @ k, (2, 4, 7, 8)), (2, 4, 5, 8)),
    "MultiheadAttention": (lambda: First(nn.MultiheadAttention(32, 4, batch_first=True), 3), (2, 10, 32)),
    "MultiheadAttention, length first": (lambda: First(nn.MultiheadAttention(32, 4), 3), (10, 2, 32)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (2, 10, 32)),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False
        ),
        (2, 10, 32),
    ),
    "TransformerDecoderLayer": (
        lambda: Function(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), (2, 7, 32)),
        (2, 10, 32),
    ),
    "mixer": (lambda: Residual(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)), (2, 9, 16)),
    "gated unit": (
        lambda: Function(lambda x, a, b, c: (functional.silu(x @ a) * (x @ b)) @ c, (8, 20), (8, 20), (20, 8)),
        (6, 8),
    ),
    "embedding bag of words": (
        lambda: Function(lambda x, table, w: functional.embedding(x.argmax(-1), table) @ w, (9, 5), (5, 3)),
        (4, 9),
    ),
    "low-rank adapter": (lambda: Function(lambda x, w, a, b: x @ w + x @ a @ b, (16, 16), (16, 2), (2, 16)), (6, 16)),
    "LSTMCell": (lambda: First(nn.LSTMCell(6, 10)), (4, 6)),
    "GRUCell": (lambda: nn.GRUCell(6, 10), (4, 6)),
    "RNNCell": (lambda: nn.RNNCell(6, 10), (4, 6)),
    "GRU": (lambda: First(nn.GRU(6, 10, 2, batch_first=True)), (4, 5, 6)),
    "bidirectional GRU": (lambda: First(nn.GRU(6, 10, bidirectional=True)), (5, 4, 6)),
    "RNN": (lambda: First(nn.RNN(6, 10)), (5, 4, 6)),
    "the same layer twice": (lambda: nn.Sequential(*[nn.Linear(6, 6)] * 2), (5, 6)),
    "two towers": (lambda: Function(lambda x, a, b: (x @ a) @ (x @ b).T, (12, 8), (12, 8)), (5, 12)),
    "distillation": (
        lambda: Function(lambda x, a, b: functional.mse_loss(x @ a, (x @ b).detach()), (12, 8), (12, 8)),
        (5, 12),
    ),
}
