"""Train a keyword spotter on clips of one second. The dataset computes the log-mel features of every clip, in the
process that trains. Fix: two workers load the data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

RATE, WINDOW, HOP, FFT, MELS, WORDS, BATCH = 16_000, 400, 160, 512, 40, 12, 32


def mel_filters() -> np.ndarray:
    highest = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, highest, MELS + 2) / 2595) - 1)
    frequencies = np.linspace(0, RATE / 2, FFT // 2 + 1)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


class Keywords(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, clips: np.ndarray, words: np.ndarray) -> None:
        self.clips, self.words = clips, words
        self.window = np.hanning(WINDOW).astype(np.float32)
        self.filters = mel_filters()

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        clip = self.clips[index].astype(np.float32) / 32768
        clip = np.append(clip[0], clip[1:] - 0.97 * clip[:-1])
        frames = np.lib.stride_tricks.sliding_window_view(clip, WINDOW)[::HOP] * self.window
        power = np.abs(np.fft.rfft(frames, FFT)) ** 2
        features = np.log(power @ self.filters + 1e-6)
        features = (features - features.mean()) / (features.std() + 1e-6)
        return torch.from_numpy(features.astype(np.float32)).unsqueeze(0), int(self.words[index])


class Spotter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Linear(64, WORDS)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(self.convolutions(features).mean(dim=(2, 3)))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    clips = rng.integers(-8000, 8000, (2560, RATE), dtype=np.int16)
    dataset = Keywords(clips, rng.integers(WORDS, size=len(clips)))
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=2 if fixed else 0)
    model = Spotter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for features, words in loader:
            loss = F.cross_entropy(model(features), words)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=50)
