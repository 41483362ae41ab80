"""Pairs about number formats, memory layouts, and the choice of kernels."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu.pairs.pair import DevicePair
from benchmarks.gpu.training import Place, Training, perceptron


def half(place: Place) -> Any:
    return torch.autocast(place.device, dtype=torch.bfloat16)


def train(net: nn.Module, images: torch.Tensor, around: Any = None, precision: str = "highest") -> Training:
    """Train with SGD. ``around`` encloses the forward pass. ``precision`` is that of float32 products; it belongs to
    the whole process, and pairs take turns, so each step sets it."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-5)
    while True:
        torch.set_float32_matmul_precision(precision)
        with around or contextlib.nullcontext():
            loss = net(images).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


class Shared(nn.Module):
    """A block that runs twelve times, as in ALBERT. ``each`` encloses each run."""

    def __init__(self, width: int, each: Any) -> None:
        super().__init__()
        self.block, self.each = perceptron(width, 2, width), each

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            with self.each or contextlib.nullcontext():
                x = self.block(x)
            if self.each is not None:
                x = x.float()
        return x


def many_regions(fixed: bool, place: Place) -> Training:
    """Each run of the block has its own autocast region, which casts the weights again."""
    width = place.size(2048, 32)
    net = Shared(width, None if fixed else half(place)).to(place.device)
    return train(net, place.randn(place.size(2048, 8), width), half(place) if fixed else None)


def single_precision(fixed: bool, place: Place) -> Training:
    width = place.size(4096, 32)
    net = perceptron(width, 4).to(place.device)
    return train(net, place.randn(place.size(4096, 8), width), half(place) if fixed else None)


def no_tf32(fixed: bool, place: Place) -> Training:
    width = place.size(4096, 32)
    net = perceptron(width, 4).to(place.device)
    return train(net, place.randn(place.size(4096, 8), width), precision="high" if fixed else "highest")


def odd_vocabulary(fixed: bool, place: Place) -> Training:
    """The head of a language model with 50257 words, or padded to 50304."""
    width, words = place.size(1024, 32), place.size(50304 if fixed else 50257, 64 if fixed else 51)
    net = nn.Linear(width, words, bias=False).to(place.device, torch.bfloat16)
    return train(net, place.randn(place.size(4096, 8), width, dtype=torch.bfloat16))


class Convolutions(nn.Module):
    """Convolutions with batch norm, as in a ResNet."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(*(
            part for _ in range(layers)
            for part in (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        ))  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.stem(images)).mean(dim=(2, 3))


def planes_first(fixed: bool, place: Place) -> Training:
    """Half-precision convolutions in the layout NCHW, which cuDNN converts to NHWC and back."""
    layout: Any = {"memory_format": torch.channels_last} if fixed else {}
    net = Convolutions(place.size(128, 8), 6).to(place.device, **layout)
    pixels = place.size(56, 8)
    return train(net, place.randn(64, 3, pixels, pixels).to(**layout), half(place))


def guessed_algorithms(fixed: bool, place: Place) -> Training:
    net, pixels = Convolutions(place.size(96, 8), 6).to(place.device), place.size(56, 8)
    for _ in train(net, place.randn(64, 3, pixels, pixels)):
        yield
        torch.backends.cudnn.benchmark = fixed  # belongs to the process; set again for the next step


class Attention(nn.Module):
    """Self-attention, written with a matrix of scores or as torch's function."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.fused = heads, fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        if self.fused:
            found = functional.scaled_dot_product_attention(query, key, value)
        else:
            scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
            found = functional.softmax(scores, dim=-1) @ value
        return x + self.out(found.transpose(1, 2).flatten(2))


def written_attention(fixed: bool, place: Place) -> Training:
    width = place.size(1024, 32)
    net = nn.Sequential(*(Attention(width, place.size(16, 2), fixed) for _ in range(4))).to(place.device)
    return train(net, place.randn(8, place.size(1024, 8), width), half(place))


PAIRS = (
    DevicePair(
        many_regions, "network with shared weights", "an autocast region for each use of the weights", "one region",
        "casts",
    ),
    DevicePair(single_precision, "large perceptron", "float32", "autocast to bfloat16", "tensor-cores-unused"),
    DevicePair(
        no_tf32, "large perceptron", "float32 products without TF32", "set_float32_matmul_precision('high')",
        "tf32-off",
    ),
    DevicePair(odd_vocabulary, "head of a language model", "50257 words", "padded to 50304 words", "unaligned-matmul"),
    DevicePair(planes_first, "convolution network in bfloat16", "layout NCHW", "channels_last", "layout-transposes"),
    DevicePair(
        guessed_algorithms, "convolution network", "cudnn.benchmark is off", "cudnn.benchmark = True", "conv-autotune",
    ),
    DevicePair(
        written_attention, "transformer layers", "attention is written by hand", "scaled_dot_product_attention",
        "unfused-attention",
    ),
)  # fmt: skip
