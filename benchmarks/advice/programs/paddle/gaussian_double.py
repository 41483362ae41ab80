"""Train a Gaussian process whose kernel compares features of a small network (deep kernel learning), by its marginal
likelihood. Everything is in double precision. Fix: single precision."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

POINTS, COLUMNS, HIDDEN, FEATURES = 400, 8, 128, 4


class DeepKernelProcess(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(COLUMNS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, FEATURES)
        )
        zero = nn.initializer.Constant(0.0)
        self.mean = self.create_parameter([1], default_initializer=zero)
        self.log_scale = self.create_parameter([1], default_initializer=zero)
        self.log_lengths = self.create_parameter([FEATURES], default_initializer=zero)
        self.log_noise = self.create_parameter([1], default_initializer=nn.initializer.Constant(-2.0))

    def covariance(self, rows: paddle.Tensor) -> paddle.Tensor:
        features = self.network(rows) / paddle.exp(self.log_lengths)
        squares = (features**2).sum(axis=1, keepdim=True)
        distances = squares + squares.t() - 2.0 * paddle.matmul(features, features, transpose_y=True)
        kernel = paddle.exp(self.log_scale - 0.5 * distances.clip(min=0.0))
        return kernel + (paddle.exp(self.log_noise) + 1e-4) * paddle.eye(rows.shape[0])

    def forward(self, rows: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
        """Negative logarithm of the marginal likelihood, per point."""
        covariance = self.covariance(rows)
        factor = paddle.linalg.cholesky(covariance)
        residuals = targets - self.mean
        fit = 0.5 * (residuals * paddle.linalg.solve(covariance, residuals)).sum()
        complexity = paddle.log(paddle.diagonal(factor)).sum()
        return (fit + complexity) / rows.shape[0] + 0.5 * math.log(2 * math.pi)


def robot_arm(dtype: str) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Angles and speeds of joints, and the normalised torque of one of them."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((POINTS, COLUMNS))
    torque = np.sin(rows[:, :4].sum(axis=1)) + rows[:, 4] * rows[:, 5] + 0.1 * rng.standard_normal(POINTS)
    torque = (torque - torque.mean()) / torque.std()
    return paddle.to_tensor(rows.astype(dtype)), paddle.to_tensor(torque[:, None].astype(dtype))


def training(fixed: bool) -> Iterator[None]:
    paddle.set_default_dtype("float32" if fixed else "float64")
    paddle.seed(0)
    rows, targets = robot_arm(paddle.get_default_dtype())
    model = DeepKernelProcess()
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=model.parameters())
    while True:
        loss = model(rows, targets)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=150)
