"""Train a neural cellular automaton that grows a flower from one cell. All of it is in float64, because NumPy makes
float64. Fix: float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CHANNELS, HIDDEN, SIZE, POOL, BATCH, UPDATES = 16, 96, 32, 64, 8, 4
OPACITY = 3
"""The channel that says whether a cell lives."""


def flower() -> np.ndarray:
    """The red, green and blue of a flower with six petals, and its opacity."""
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    petals = radius < 0.45 + 0.3 * np.cos(6 * angle)
    heart = radius < 0.2
    red, green, blue = petals * 0.9, heart * 0.8, (petals & ~heart) * 0.5
    return np.stack([red, green, blue, petals | heart], axis=-1)


def seeds(count: int) -> np.ndarray:
    """Grids with one living cell."""
    cells = np.zeros((count, SIZE, SIZE, CHANNELS))
    cells[:, SIZE // 2, SIZE // 2, OPACITY:] = 1
    return cells


def slope(cells: paddle.Tensor, axis: int) -> paddle.Tensor:
    """The Sobel filter along an axis of the grid, whose ends meet."""
    across = 3 - axis
    smooth = paddle.roll(cells, 1, axis=across) + 2 * cells + paddle.roll(cells, -1, axis=across)
    return (paddle.roll(smooth, -1, axis=axis) - paddle.roll(smooth, 1, axis=axis)) / 8


class Automaton(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(3 * CHANNELS, HIDDEN)
        self.change = nn.Linear(HIDDEN, CHANNELS, weight_attr=nn.initializer.Constant(0.0), bias_attr=False)

    def alive(self, cells: paddle.Tensor) -> paddle.Tensor:
        opacity = cells[..., OPACITY].unsqueeze(1)
        neighbours = F.max_pool2d(opacity, 3, stride=1, padding=1)
        return (neighbours > 0.1).astype(cells.dtype).squeeze(1).unsqueeze(-1)

    def forward(self, cells: paddle.Tensor, active: paddle.Tensor) -> paddle.Tensor:
        """One update of the active cells. A cell stays empty unless it or a neighbour lives."""
        perceived = paddle.concat([cells, slope(cells, 1), slope(cells, 2)], axis=-1)
        updated = cells + self.change(F.relu(self.hidden(perceived))) * active
        return updated * self.alive(cells)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    dtype = "float32" if fixed else "float64"
    paddle.set_default_dtype(dtype)
    target = paddle.to_tensor(flower(), dtype=dtype)
    pool = seeds(POOL).astype(dtype)
    model = Automaton()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1.0))
    history: list[float] = []
    while True:
        picked = rng.choice(POOL, BATCH, replace=False)
        pool[picked[0]] = seeds(1)[0]
        cells = paddle.to_tensor(pool[picked])
        for _ in range(UPDATES):
            active = paddle.to_tensor(rng.random((BATCH, SIZE, SIZE, 1)) < 0.5).astype(dtype)
            cells = model(cells, active)
        loss = F.mse_loss(cells[..., : OPACITY + 1], target.expand([BATCH, SIZE, SIZE, 4]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        pool[picked] = cells.detach().numpy()
        history.append(loss.item())
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=70)
