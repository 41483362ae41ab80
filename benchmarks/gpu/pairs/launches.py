"""Pairs about many short kernels, and about what runs them together."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.gpu.pairs.pair import DevicePair
from benchmarks.gpu.training import Place, Training, captured, perceptron


def graphed(fixed: bool, place: Place, width: int, rows: int, layers: int) -> Training:
    net = perceptron(width, layers).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    images, labels = place.randn(rows, width), place.labels(rows, 10)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()

    run = captured(step, place) if fixed else step
    while True:
        run()
        yield


def small_layers(fixed: bool, place: Place) -> Training:
    return graphed(fixed, place, place.size(256, 16), 64, place.size(32, 2))


def large_layers(fixed: bool, place: Place) -> Training:
    """Kernels take longer than their launches, so a graph saves nothing."""
    return graphed(fixed, place, place.size(4096, 16), place.size(4096, 8), 4)


class Written(nn.Module):
    """GELU and layer norm, written with elementwise operators or as functions of torch."""

    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.linear, self.fused = nn.Linear(width, width), fused
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        if self.fused:
            x = nn.functional.gelu(x, approximate="tanh")
            return nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias)
        x = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * self.weight + self.bias


def train(net: nn.Module, images: torch.Tensor, optimizer: Any, keep_gradients: bool = False) -> Training:
    while True:
        net(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not keep_gradients)
        yield


def written_gelu(fixed: bool, place: Place) -> Training:
    width = place.size(1024, 32)
    net = nn.Sequential(*(Written(width, fixed) for _ in range(6))).to(place.device)
    return train(net, place.randn(place.size(16384, 16), width), torch.optim.SGD(net.parameters(), lr=1e-4))


def many_tensors(place: Place) -> nn.Module:
    return perceptron(place.size(256, 16), place.size(60, 4)).to(place.device)


def adam_loop(fixed: bool, place: Place) -> Training:
    net = many_tensors(place)
    kind = {"fused": True} if fixed else {"foreach": False}
    return train(net, place.randn(64, place.size(256, 16)), torch.optim.Adam(net.parameters(), **kind))


def sgd_loop(fixed: bool, place: Place) -> Training:
    net = many_tensors(place)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, foreach=fixed)
    return train(net, place.randn(64, place.size(256, 16)), optimizer)


def zeroed_gradients(fixed: bool, place: Place) -> Training:
    net = perceptron(place.size(2048, 16), place.size(24, 4)).to(place.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    return train(net, place.randn(256, place.size(2048, 16)), optimizer, keep_gradients=not fixed)


PAIRS = (
    DevicePair(
        small_layers, "deep perceptron", "many short kernels are launched one by one", "a CUDA graph", "launch-bound",
    ),
    DevicePair(
        large_layers, "large perceptron", "large kernels are launched one by one", "a CUDA graph", "launch-bound",
    ),
    DevicePair(
        written_gelu, "perceptron with norms", "GELU and layer norm from elementwise operators",
        "F.gelu and F.layer_norm", "elementwise-chain",
    ),
    DevicePair(
        adam_loop, "deep perceptron", "Adam updates 122 tensors one by one", "fused=True", "per-tensor-optimizer",
    ),
    DevicePair(
        sgd_loop, "deep perceptron", "SGD updates 122 tensors one by one", "foreach=True", "per-tensor-optimizer",
    ),
    DevicePair(
        zeroed_gradients, "deep perceptron", "gradients are filled with zeros", "set_to_none=True",
        "zero-fill-gradients",
    ),
)  # fmt: skip
