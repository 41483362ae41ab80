"""Train a small network that doubles the resolution of photographs: residual blocks and a pixel shuffle. Its maps are
large and its layout is NCHW. Fix: channels_last for the model and the images."""

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

CHANNELS, BLOCKS, PATCH, SCALE, BATCH = 32, 2, 96, 2, 2


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv2(F.relu(self.conv1(x)))


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 5, padding=2)
        self.blocks = nn.Sequential(*(Residual() for _ in range(BLOCKS)))
        self.last = nn.Conv2d(CHANNELS, 3 * SCALE**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(SCALE)

    def forward(self, small: torch.Tensor) -> torch.Tensor:
        x = self.first(small)
        return self.shuffle(self.last(x + self.blocks(x)))


class Patches(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random patches of photographs, and the same patches at half the resolution."""

    def __init__(self, photographs: torch.Tensor, count: int) -> None:
        self.photographs, self.count = photographs, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        photograph = self.photographs[index % len(self.photographs)]
        size = PATCH * SCALE
        top, left = (int(torch.randint(edge - size, ())) for edge in photograph.shape[1:])
        large = photograph[:, top : top + size, left : left + size]
        return F.avg_pool2d(large, SCALE), large


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    photographs = F.interpolate(torch.rand(16, 3, 64, 64), size=(320, 480), mode="bilinear")
    loader = DataLoader(Patches(photographs, 200), batch_size=BATCH, shuffle=True)
    layout = torch.channels_last if fixed else torch.contiguous_format
    model = SuperResolution().to(memory_format=layout)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    while True:
        for small, large in loader:
            restored = model(small.contiguous(memory_format=layout))
            loss = F.l1_loss(restored, large.contiguous(memory_format=layout))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=50)
