"""Train a convolutional network that tags sounds. The data set computes spectrograms and augments them, in the process
of the training. Fix: two workers load the data."""

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

RATE, WINDOW, HOP, BANDS, TAGS, BATCH = 16_000, 512, 160, 64, 20, 16


def mel_filters() -> np.ndarray:
    """Triangular filters, evenly spaced on the mel scale: [frequencies, bands]."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, BANDS + 2) / 2595) - 1)
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.minimum(rising, falling).clip(min=0).astype("float32")


class Clips(Dataset):
    """Sounds of one second, with the tags that apply to each."""

    def __init__(self, count: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.waves = 0.1 * rng.standard_normal((count, RATE), dtype="float32")
        self.tags = (rng.random((count, TAGS)) < 0.1).astype("float32")
        self.filters = mel_filters()
        self.window = np.hanning(WINDOW).astype("float32")

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        wave = np.roll(self.waves[index], np.random.randint(RATE // 10))
        times = np.arange(RATE)
        wave = np.interp(times * np.random.uniform(0.8, 1.2), times, wave) * np.random.uniform(0.5, 1.5)
        wave += 0.005 * np.random.standard_normal(RATE)
        frames = np.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP] * self.window
        power = np.abs(np.fft.rfft(frames)) ** 2
        spectrogram = np.log(power.astype("float32") @ self.filters + 1e-6).T
        spectrogram = (spectrogram - spectrogram.mean()) / spectrogram.std()
        band, time = np.random.randint(BANDS - 8), np.random.randint(spectrogram.shape[1] - 16)
        spectrogram[band : band + 8] = 0
        spectrogram[:, time : time + 16] = 0
        return spectrogram[None].astype("float32"), self.tags[index]


def tagger() -> nn.Layer:
    layers: list[nn.Layer] = []
    channels = 1
    for width in (16, 32, 64):
        layers += [nn.Conv2D(channels, width, 3, 2, 1), nn.BatchNorm2D(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(channels, TAGS))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    clips = Clips(1024)
    loader = DataLoader(clips, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2 if fixed else 0)
    model = tagger()
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=model.parameters())
    while True:
        for spectrograms, tags in loader:
            loss = F.binary_cross_entropy_with_logits(model(spectrograms), tags)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
