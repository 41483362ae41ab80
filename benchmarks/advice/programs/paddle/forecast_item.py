"""Train a temporal convolutional network that forecasts a series. It reads the loss in every step to show a running
mean. Fix, as often advised: every 50 steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WINDOW, HORIZON, WIDTH, BATCH = 96, 12, 32, 32


class Block(nn.Layer):
    def __init__(self, inputs: int, dilation: int) -> None:
        super().__init__()
        self.padding = 2 * dilation
        self.convolution = nn.Conv1D(inputs, WIDTH, 3, dilation=dilation)
        self.shortcut = nn.Conv1D(inputs, WIDTH, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        padded = F.pad(x, [self.padding, 0], data_format="NCL")
        return F.relu(self.convolution(padded)) + self.shortcut(x)


class Forecaster(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(1, 1), Block(WIDTH, 2), Block(WIDTH, 4), Block(WIDTH, 8))
        self.head = nn.Linear(WIDTH, HORIZON)

    def forward(self, series: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.blocks(series)[:, :, -1])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    hours = paddle.arange(20_000).astype("float32")
    series = paddle.sin(hours * (2 * math.pi / 24)) + 0.5 * paddle.sin(hours * (2 * math.pi / 168))
    series = series + 0.1 * paddle.randn(hours.shape)
    span = paddle.arange(WINDOW + HORIZON)
    model = Forecaster()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    log_every = 50 if fixed else 1
    step, running = 0, 0.0
    while True:
        starts = paddle.randint(0, len(series) - WINDOW - HORIZON, [BATCH, 1])
        windows = series[starts + span]
        loss = F.mse_loss(model(windows[:, :WINDOW].unsqueeze(1)), windows[:, WINDOW:])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % log_every == 0:
            running = float(loss) if step == 0 else 0.9 * running + 0.1 * float(loss)
            sys.stderr.write(f"\rstep {step}: loss {running:.4f}")
        step += 1
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=80)
