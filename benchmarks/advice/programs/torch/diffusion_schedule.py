"""Train a denoising diffusion model on 28x28 images. The loss builds the noise schedule and the table of the timestep
embeddings in every step. Fix: both are built once."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

TIMESTEPS, TIME_WIDTH, CHANNELS, BATCH = 1000, 128, 32, 16


def noise_schedule() -> torch.Tensor:
    betas = torch.linspace(1e-4, 0.02, TIMESTEPS)
    return torch.cumprod(1.0 - betas, dim=0)


def timestep_table() -> torch.Tensor:
    half = TIME_WIDTH // 2
    frequencies = torch.exp(-math.log(10_000) * torch.arange(half) / half)
    angles = torch.arange(TIMESTEPS)[:, None] * frequencies[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class ResBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(TIME_WIDTH, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(TIME_WIDTH, TIME_WIDTH), nn.SiLU(), nn.Linear(TIME_WIDTH, TIME_WIDTH))
        self.stem = nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.down1 = ResBlock(CHANNELS, CHANNELS)
        self.down2 = ResBlock(CHANNELS, 2 * CHANNELS)
        self.middle = ResBlock(2 * CHANNELS, 2 * CHANNELS)
        self.up2 = ResBlock(4 * CHANNELS, CHANNELS)
        self.up1 = ResBlock(2 * CHANNELS, CHANNELS)
        self.out = nn.Conv2d(CHANNELS, 1, 3, padding=1)

    def forward(self, x: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        time = self.time(embedding)
        full = self.down1(self.stem(x), time)
        half = self.down2(F.avg_pool2d(full, 2), time)
        quarter = self.middle(F.avg_pool2d(half, 2), time)
        y = self.up2(torch.cat([F.interpolate(quarter, scale_factor=2), half], dim=1), time)
        y = self.up1(torch.cat([F.interpolate(y, scale_factor=2), full], dim=1), time)
        return self.out(F.silu(y))


def diffusion_loss(
    model: nn.Module, images: torch.Tensor, alpha_bar: torch.Tensor, embeddings: torch.Tensor
) -> torch.Tensor:
    t = torch.randint(TIMESTEPS, (len(images),))
    noise = torch.randn_like(images)
    signal = alpha_bar[t].view(-1, 1, 1, 1)
    noisy = signal.sqrt() * images + (1 - signal).sqrt() * noise
    return F.mse_loss(model(noisy, embeddings[t]), noise)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.rand(1600, 1, 28, 28) * 2 - 1), BATCH, shuffle=True)
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    if fixed:
        alpha_bar, embeddings = noise_schedule(), timestep_table()
    while True:
        for (images,) in loader:
            if not fixed:
                alpha_bar, embeddings = noise_schedule(), timestep_table()
            loss = diffusion_loss(model, images, alpha_bar, embeddings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=50)
