"""Denoise photographs with a DnCNN, and measure how near they come to the clean ones: every step is one batch. Autograd
records the forward pass. Fix: paddle.no_grad."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, CHANNELS, LAYERS, BATCH, NOISE = 64, 32, 8, 4, 25 / 255


class Photographs(Dataset):
    """Smooth gray images, and the same images with noise."""

    def __init__(self, count: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        y, x = np.mgrid[:SIZE, :SIZE] / SIZE
        waves = rng.uniform(1, 12, (count, 2, 1, 1))
        self.clean = (0.5 + 0.4 * np.sin(waves[:, :1] * y + waves[:, 1:] * x)).astype("float32")
        self.noisy = (self.clean + NOISE * rng.standard_normal(self.clean.shape)).astype("float32")

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.noisy[index], self.clean[index]

    def __len__(self) -> int:
        return len(self.clean)


class DnCNN(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2D(1, CHANNELS, 3, padding=1), nn.ReLU()]
        for _ in range(LAYERS - 2):
            layers += [
                nn.Conv2D(CHANNELS, CHANNELS, 3, padding=1, bias_attr=False),
                nn.BatchNorm2D(CHANNELS),
                nn.ReLU(),
            ]
        self.noise = nn.Sequential(*layers, nn.Conv2D(CHANNELS, 1, 3, padding=1))

    def forward(self, noisy: paddle.Tensor) -> paddle.Tensor:
        return noisy - self.noise(noisy)


def signal_to_noise(images: paddle.Tensor, clean: paddle.Tensor) -> paddle.Tensor:
    """Peak signal to noise ratio of each image in dB."""
    return -10.0 * paddle.log10(((images - clean) ** 2).mean(axis=[1, 2, 3]))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    loader = DataLoader(Photographs(200), batch_size=BATCH)
    model = DnCNN()
    model.eval()
    while True:
        ratios: list[float] = []
        for noisy, clean in loader:
            with paddle.no_grad() if fixed else contextlib.nullcontext():
                restored = model(noisy).clip(0.0, 1.0)
                ratios += signal_to_noise(restored, clean).tolist()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=60)
