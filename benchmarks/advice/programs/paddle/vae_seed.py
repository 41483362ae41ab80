"""Train a variational autoencoder on small images. Two workers load and lightly augment them, with a seed per image.
Fix, as often advised: four workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, HIDDEN, LATENT, BATCH = 28, 400, 20, 128


class Images(Dataset):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.pixels = np.random.default_rng(0).integers(256, size=(count, SIZE, SIZE), dtype=np.uint8)

    def __getitem__(self, index: int) -> np.ndarray:
        random = np.random.default_rng(index)
        image = self.pixels[index]
        if random.random() < 0.5:
            image = image[:, ::-1]
        down, right = random.integers(-2, 3, size=2)
        image = np.roll(image, (down, right), axis=(0, 1))
        return image.reshape(-1).astype(np.float32) / 255.0

    def __len__(self) -> int:
        return len(self.pixels)


class VAE(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIZE * SIZE, HIDDEN), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(HIDDEN, LATENT), nn.Linear(HIDDEN, LATENT)
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, SIZE * SIZE))

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        x = self.encoder(images)
        mean, log_variance = self.mean(x), self.log_variance(x)
        latent = mean + paddle.exp(0.5 * log_variance) * paddle.randn(mean.shape)
        reconstruction = F.binary_cross_entropy_with_logits(self.decoder(latent), images, reduction="sum")
        divergence = -0.5 * (1.0 + log_variance - mean.square() - log_variance.exp()).sum()
        return (reconstruction + divergence) / len(images)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    workers = 4 if fixed else 2
    loader = DataLoader(Images(4096), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers)
    model = VAE()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        for images in loader:
            loss = model(images)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=70)
