"""Train a network that hears the emotion in a spoken sentence, from its mel spectrogram. It was written for a laptop,
and accumulates the gradients of eight batches of two sentences. Fix: one batch of 16 sentences."""

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

SENTENCES, BANDS, FRAMES, EMOTIONS, BATCH = 640, 40, 120, 7, 16


class Sentences(Dataset):
    """Spectrograms of sentences. An emotion raises or lowers some of the bands, for a part of the sentence."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.emotions = rng.integers(0, EMOTIONS, SENTENCES)
        tones = rng.normal(0, 0.7, (EMOTIONS, BANDS, 1))
        self.spectrograms = rng.normal(0, 1, (SENTENCES, BANDS, FRAMES)).astype(np.float32)
        starts = rng.integers(0, 80, SENTENCES)
        for spectrogram, emotion, start in zip(self.spectrograms, self.emotions, starts, strict=True):
            spectrogram[:, start : start + 40] += tones[emotion]

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        spectrogram = self.spectrograms[index]
        mean = spectrogram.mean(axis=1, keepdims=True)
        return (spectrogram - mean) / spectrogram.std(), self.emotions[index]

    def __len__(self) -> int:
        return SENTENCES


class EmotionNet(nn.Layer):
    """Convolutions over time, a recurrent layer, and an attention that picks the frames that show the emotion."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv1D(BANDS, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1D(2),
            nn.Conv1D(64, 96, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1D(2),
        )
        self.recurrent = nn.GRU(96, 64)
        self.attention = nn.Linear(64, 1)
        self.head = nn.Linear(64, EMOTIONS)

    def forward(self, spectrograms: paddle.Tensor) -> paddle.Tensor:
        frames = self.convolutions(spectrograms).transpose([0, 2, 1])
        states, _ = self.recurrent(frames)
        weights = F.softmax(self.attention(states), axis=1)
        return self.head((weights * states).sum(axis=1))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    size = BATCH if fixed else 2
    accumulation = BATCH // size
    loader = DataLoader(Sentences(), batch_size=size, shuffle=True, drop_last=True)
    model = EmotionNet()
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=1e-2)
    accuracy = paddle.metric.Accuracy()
    while True:
        accuracy.reset()
        for number, (spectrograms, emotions) in enumerate(loader, start=1):
            logits = model(spectrograms)
            loss = F.cross_entropy(logits, emotions) / accumulation
            loss.backward()
            accuracy.update(accuracy.compute(logits, emotions.unsqueeze(1)))
            if number % accumulation == 0:
                optimizer.step()
                optimizer.clear_grad()
                yield


if __name__ == "__main__":
    run(training, "paddle", steps=100)
