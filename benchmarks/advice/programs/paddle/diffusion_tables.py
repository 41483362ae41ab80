"""Train a diffusion model for small images. Each step builds the schedule of the noise and the table of timestep
embeddings again. Fix: build them once."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

TIMESTEPS, SIZE, CHANNELS, WIDTH, BATCH = 1000, 16, 32, 128, 16


def cosine_schedule() -> paddle.Tensor:
    """How much of the image is left at each timestep."""

    def alpha_bar(time: float) -> float:
        return math.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [min(1 - alpha_bar((t + 1) / TIMESTEPS) / alpha_bar(t / TIMESTEPS), 0.999) for t in range(TIMESTEPS)]
    return paddle.cumprod(1 - paddle.to_tensor(betas, dtype="float32"), dim=0)


def timestep_table() -> paddle.Tensor:
    """Sines and cosines of each timestep: [timesteps, width]."""
    frequencies = paddle.exp(-math.log(10_000) * paddle.arange(WIDTH // 2, dtype="float32") / (WIDTH // 2))
    angles = paddle.arange(TIMESTEPS, dtype="float32").unsqueeze(1) * frequencies
    return paddle.concat([paddle.sin(angles), paddle.cos(angles)], axis=1)


class Block(nn.Layer):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2D(inputs, outputs, 3, padding=1), nn.Conv2D(outputs, outputs, 3, padding=1)
        self.norm = nn.GroupNorm(8, outputs)
        self.time = nn.Linear(WIDTH, outputs)

    def forward(self, x: paddle.Tensor, time: paddle.Tensor) -> paddle.Tensor:
        x = F.silu(self.conv1(x)) + self.time(time).unsqueeze([2, 3])
        return x + F.silu(self.conv2(self.norm(x)))


class Denoiser(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Silu(), nn.Linear(WIDTH, WIDTH))
        self.down, self.middle = Block(3, CHANNELS), Block(CHANNELS, 2 * CHANNELS)
        self.up, self.out = Block(3 * CHANNELS, CHANNELS), nn.Conv2D(CHANNELS, 3, 1)

    def forward(self, x: paddle.Tensor, time: paddle.Tensor) -> paddle.Tensor:
        time = self.time(time)
        fine = self.down(x, time)
        coarse = self.middle(F.avg_pool2d(fine, 2), time)
        coarse = F.interpolate(coarse, scale_factor=2, mode="nearest")
        return self.out(self.up(paddle.concat([fine, coarse], axis=1), time))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    pictures = paddle.rand([800, 3, SIZE, SIZE]) * 2 - 1
    loader = DataLoader(TensorDataset([pictures]), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Denoiser()
    optimizer = paddle.optimizer.AdamW(learning_rate=2e-4, parameters=model.parameters())
    schedule, table = cosine_schedule(), timestep_table()
    while True:
        for (images,) in loader:
            if not fixed:
                schedule, table = cosine_schedule(), timestep_table()
            times = paddle.randint(0, TIMESTEPS, [BATCH])
            noise = paddle.randn(images.shape)
            left = paddle.gather(schedule, times).reshape([-1, 1, 1, 1])
            noisy = paddle.sqrt(left) * images + paddle.sqrt(1 - left) * noise
            loss = F.mse_loss(model(noisy, paddle.gather(table, times)), noise)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
