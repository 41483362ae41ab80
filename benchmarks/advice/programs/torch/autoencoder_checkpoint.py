"""Train a convolutional autoencoder on 64x64 images. The model and the optimizer are saved after each step, to be safe.
Fix: save them every 50 steps."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

BATCH, WIDTH, LATENT = 16, 16, 128


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, WIDTH, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * WIDTH, 4 * WIDTH, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * WIDTH * 8 * 8, LATENT),
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, 4 * WIDTH * 8 * 8),
            nn.ReLU(),
            nn.Unflatten(1, (4 * WIDTH, 8, 8)),
            nn.ConvTranspose2d(4 * WIDTH, 2 * WIDTH, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(WIDTH, 3, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(images))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    save_every = 50 if fixed else 1
    coarse = torch.rand(800, 3, 8, 8)
    loader = DataLoader(TensorDataset(F.interpolate(coarse, size=64, mode="bilinear")), batch_size=BATCH, shuffle=True)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            for (images,) in loader:
                loss = F.mse_loss(model(images), images)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % save_every == 0:
                    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                    torch.save(state, Path(folder) / "last.pt")
                yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
