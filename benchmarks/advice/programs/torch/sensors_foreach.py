"""Train an autoencoder on windows of sensors of a machine. Windows that it restores badly are anomalies. The program
uses the default Adam. Fix, as often recommended: Adam with foreach=True. With a few large tensors on a processor, this
should save nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

MOMENTS, SENSORS, WINDOW, BATCH = 6000, 32, 48, 64


class Windows(Dataset):
    """Windows of a long series of sensors that swing together, scaled to zero mean and unit deviation."""

    def __init__(self) -> None:
        moments = torch.arange(MOMENTS)[:, None]
        periods = torch.rand(SENSORS) * 60 + 20
        waves = torch.sin(moments * 2 * torch.pi / periods)
        series = waves @ (torch.randn(SENSORS, SENSORS) / SENSORS**0.5) + 0.1 * torch.randn(MOMENTS, SENSORS)
        self.series = (series - series.mean(0)) / series.std(0)

    def __len__(self) -> int:
        return MOMENTS - WINDOW + 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.series[index : index + WINDOW].flatten()


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inputs = SENSORS * WINDOW
        self.encoder = nn.Sequential(
            nn.Linear(inputs, 768),
            nn.ReLU(),
            nn.Linear(768, 256),
            nn.ReLU(),
            nn.Linear(256, 24),
        )
        self.decoder = nn.Sequential(
            nn.Linear(24, 256),
            nn.ReLU(),
            nn.Linear(256, 768),
            nn.ReLU(),
            nn.Linear(768, inputs),
        )

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.encoder(windows))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(Windows(), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True if fixed else None)
    mean, square = torch.zeros(()), torch.zeros(())
    while True:
        for windows in loader:
            noisy = windows + 0.1 * torch.randn_like(windows)
            errors = F.mse_loss(model(noisy), windows, reduction="none").mean(1)
            loss = errors.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            # Running mean and mean square of the errors, from which the threshold of an anomaly follows.
            mean = 0.98 * mean + 0.02 * errors.detach().mean()
            square = 0.98 * square + 0.02 * errors.detach().square().mean()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=250)
