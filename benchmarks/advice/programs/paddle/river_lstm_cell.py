"""Train a forecaster of a river's level from rain, snow and temperature of the days before. It predicts quantiles. A
loop over time calls two stacked LSTM cells. Fix: an LSTM with two layers, which takes the whole sequence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

INPUTS, DAYS, HORIZON, HIDDEN, BATCH = 5, 60, 7, 64, 32
QUANTILES = (0.1, 0.5, 0.9)


class Catchment(Dataset):
    """Windows of the daily weather and the level of the river, and the levels of the week after."""

    def __init__(self, days: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        season = np.arange(days) * 2 * np.pi / 365
        rain = rng.gamma(0.4, 1.0, days) * (1.2 + np.cos(season))
        level = np.convolve(rain, np.exp(-np.arange(40) / 8) / 8)[:days]
        temperature = -np.cos(season) + 0.3 * rng.standard_normal(days)
        snow = np.where(temperature < -0.5, rain, 0.0)
        self.series = np.stack([rain, snow, temperature, np.sin(season), level], axis=1).astype("float32")

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        end = index + DAYS
        return self.series[index:end], self.series[end : end + HORIZON, -1]

    def __len__(self) -> int:
        return len(self.series) - DAYS - HORIZON


class Forecaster(nn.Layer):
    def __init__(self, whole_sequence: bool) -> None:
        super().__init__()
        self.whole_sequence = whole_sequence
        if whole_sequence:
            self.lstm = nn.LSTM(INPUTS, HIDDEN, num_layers=2)
        else:
            self.lower, self.upper = nn.LSTMCell(INPUTS, HIDDEN), nn.LSTMCell(HIDDEN, HIDDEN)
        self.head = nn.Linear(HIDDEN, HORIZON * len(QUANTILES))

    def forward(self, weather: paddle.Tensor) -> paddle.Tensor:
        if self.whole_sequence:
            outputs, _ = self.lstm(weather)
            output = outputs[:, -1]
        else:
            lower = upper = (paddle.zeros([weather.shape[0], HIDDEN]), paddle.zeros([weather.shape[0], HIDDEN]))
            for day in range(DAYS):
                output, lower = self.lower(weather[:, day], lower)
                output, upper = self.upper(output, upper)
        return self.head(output).reshape([0, HORIZON, len(QUANTILES)])


def pinball_loss(quantiles: paddle.Tensor, levels: paddle.Tensor) -> paddle.Tensor:
    errors = levels.unsqueeze(-1) - quantiles
    shares = paddle.to_tensor(QUANTILES)
    return paddle.maximum(shares * errors, (shares - 1.0) * errors).mean()


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Catchment(20 * 365), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Forecaster(whole_sequence=fixed)
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=model.parameters())
    while True:
        for weather, levels in loader:
            loss = pinball_loss(model(weather), levels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
