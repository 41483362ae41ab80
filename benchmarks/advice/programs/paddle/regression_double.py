"""Train a network that solves Burgers' equation: its loss is the residual of the equation. Everything is in double
precision. Fix: single precision."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

POINTS, EDGE_POINTS, WIDTH, LAYERS = 2000, 200, 64, 4
VISCOSITY = 0.01 / np.pi


class Network(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        sizes = [2] + [WIDTH] * LAYERS
        self.hidden = nn.LayerList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: paddle.Tensor, t: paddle.Tensor) -> paddle.Tensor:
        y = paddle.concat([x, t], axis=1)
        for layer in self.hidden:
            y = paddle.tanh(layer(y))
        return self.out(y)


def residual(network: Network, x: paddle.Tensor, t: paddle.Tensor) -> paddle.Tensor:
    u = network(x, t)
    u_x, u_t = paddle.grad(u, [x, t], create_graph=True)
    (u_xx,) = paddle.grad(u_x, [x], create_graph=True)
    return u_t + u * u_x - VISCOSITY * u_xx


def training(fixed: bool) -> Iterator[None]:
    paddle.set_default_dtype("float32" if fixed else "float64")
    paddle.seed(0)
    rng = np.random.default_rng(0)
    dtype = paddle.get_default_dtype()
    x = paddle.to_tensor(rng.uniform(-1, 1, (POINTS, 1)).astype(dtype), stop_gradient=False)
    t = paddle.to_tensor(rng.uniform(0, 1, (POINTS, 1)).astype(dtype), stop_gradient=False)
    start_x = rng.uniform(-1, 1, (EDGE_POINTS, 1))
    wall_x = rng.choice([-1.0, 1.0], (EDGE_POINTS, 1))
    wall_t = rng.uniform(0, 1, (EDGE_POINTS, 1))
    edge_x = paddle.to_tensor(np.concatenate([start_x, wall_x]).astype(dtype))
    edge_t = paddle.to_tensor(np.concatenate([np.zeros_like(start_x), wall_t]).astype(dtype))
    edge_u = paddle.to_tensor(np.concatenate([-np.sin(np.pi * start_x), np.zeros_like(wall_x)]).astype(dtype))
    network = Network()
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=network.parameters())
    while True:
        equation_loss = (residual(network, x, t) ** 2).mean()
        edge_loss = F.mse_loss(network(edge_x, edge_t), edge_u)
        loss = equation_loss + edge_loss
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
