"""Train a network of separable convolutions that recognises spoken commands in spectrograms. Each step reads its loss
with item(). Fix: read the loss every 50 steps. On a processor, this should save nothing that can be measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLIPS, BANDS, FRAMES, COMMANDS, WIDTH, BATCH = 960, 40, 64, 12, 48, 32


class SeparableBlock(nn.Module):
    """A convolution of each channel for itself, and a convolution over the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.pointwise = nn.Conv2d(width, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm1(self.depthwise(x)))
        return F.relu(self.norm2(self.pointwise(x)))


class CommandNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTH, (8, 10), stride=(2, 4), padding=(3, 3))
        self.blocks = nn.Sequential(*(SeparableBlock(WIDTH) for _ in range(3)))
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(WIDTH, COMMANDS)

    def forward(self, spectrograms: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.relu(self.stem(spectrograms)))
        return self.head(self.dropout(x.mean((2, 3))))


def clips() -> TensorDataset:
    """Noise with a tone that rises or falls in another way for each command."""
    commands = torch.randint(COMMANDS, (CLIPS,))
    frames = torch.linspace(0, 1, FRAMES)
    tones = BANDS / 2 + (commands[:, None] - COMMANDS / 2) * 3 * (frames - 0.5)
    bands = torch.arange(BANDS)[None, :, None]
    spectrograms = torch.exp(-((bands - tones[:, None, :]) ** 2) / 4)
    return TensorDataset((spectrograms + 0.3 * torch.randn_like(spectrograms))[:, None], commands)


def mask_bands(spectrograms: torch.Tensor) -> torch.Tensor:
    """Silences a few bands and frames, the same in all clips of the batch."""
    band, frame = torch.randint(BANDS - 4, ()), torch.randint(FRAMES - 8, ())
    spectrograms[:, :, band : band + 4] = 0
    spectrograms[..., frame : frame + 8] = 0
    return spectrograms


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    every = 50 if fixed else 1
    loader = DataLoader(clips(), batch_size=BATCH, shuffle=True, drop_last=True)
    model = CommandNetwork()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    step, losses = 0, []
    while True:
        for spectrograms, commands in loader:
            loss = F.cross_entropy(model(mask_bands(spectrograms)), commands, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % every == 0:
                losses.append(loss.item())
            yield


if __name__ == "__main__":
    run(training, "torch", steps=250)
