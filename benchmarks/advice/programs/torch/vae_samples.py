"""Train a convolutional variational autoencoder on 28x28 images. After each step it writes a grid of samples, and a
line of JSON with its metrics, to watch the training. Fix: write them every 50 steps."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

LATENT, SIDE, BATCH = 16, 8, 64


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 2 * LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, 32 * 7 * 7),
            nn.Unflatten(1, (32, 7, 7)),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(latent), mean, log_variance


class Report:
    """Writes what the model draws for the same noise, and the metrics, into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.noise = torch.randn(SIDE * SIDE, LATENT)

    @torch.no_grad()
    def write(self, model: VAE, step: int, metrics: dict[str, torch.Tensor]) -> None:
        drawn = model.decoder(self.noise).sigmoid()
        grid = drawn.view(SIDE, SIDE, 28, 28).transpose(1, 2).reshape(SIDE * 28, SIDE * 28)
        np.save(self.folder / f"samples_{step:06}.npy", grid.numpy())
        line = {"step": step} | {name: value.item() for name, value in metrics.items()}
        with (self.folder / "metrics.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    images = (F.interpolate(torch.rand(2048, 1, 7, 7), size=(28, 28), mode="bilinear") > 0.5).float()
    loader = DataLoader(TensorDataset(images), batch_size=BATCH, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    interval, step = 50 if fixed else 1, 0
    with tempfile.TemporaryDirectory() as folder:
        report = Report(Path(folder))
        while True:
            for (batch,) in loader:
                logits, mean, log_variance = model(batch)
                reconstruction = F.binary_cross_entropy_with_logits(logits, batch, reduction="sum") / len(batch)
                divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1).mean()
                loss = reconstruction + divergence
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % interval == 0:
                    report.write(model, step, {"reconstruction": reconstruction, "divergence": divergence})
                step += 1
                yield


if __name__ == "__main__":
    run(training, "torch", steps=160)
