"""Train a siamese network that verifies signatures. A step computes the embeddings of its pairs for the loss, and
computes them again for the accuracy. Fix: the accuracy takes the distances that the loss was computed from."""

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

WRITERS, HEIGHT, LENGTH, POINTS, BATCH, MARGIN = 50, 32, 64, 300, 12, 1.0


class Pairs(Dataset):
    """Pairs of signatures. A signature is a curve of three harmonics, drawn with a hand that trembles. Half of the
    pairs are by one writer."""

    def __init__(self, count: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.hands = rng.normal(size=(WRITERS, 2, 3)) / [1, 2, 3]
        self.same = rng.integers(0, 2, count).astype(np.float32)
        left = rng.integers(0, WRITERS, count)
        right = np.where(self.same == 1, left, (left + rng.integers(1, WRITERS, count)) % WRITERS)
        self.pictures = np.stack([self.sign(left, rng), self.sign(right, rng)], axis=1)

    def sign(self, writers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        hands = self.hands[writers] + 0.1 * rng.normal(size=(len(writers), 2, 3))
        times = np.linspace(0, 2 * np.pi, POINTS)
        waves = np.sin(np.arange(1, 4)[:, None] * times)
        x, y = np.tanh(np.moveaxis(hands @ waves, 1, 0))
        pictures = np.zeros((len(writers), 1, HEIGHT, LENGTH), dtype=np.float32)
        rows, columns = ((y + 1) / 2 * (HEIGHT - 1)).astype(int), ((x + 1) / 2 * (LENGTH - 1)).astype(int)
        pictures[np.arange(len(writers))[:, None], 0, rows, columns] = 1
        return pictures

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.float32]:
        left, right = self.pictures[index]
        return left, right, self.same[index]

    def __len__(self) -> int:
        return len(self.same)


class SignatureNet(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(32, 48, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2D(4),
            nn.Flatten(),
        )
        self.embedding = nn.Linear(48 * 16, 64)

    def forward(self, pictures: paddle.Tensor) -> paddle.Tensor:
        return self.embedding(self.features(pictures))


def contrastive_loss(distances: paddle.Tensor, same: paddle.Tensor) -> paddle.Tensor:
    return (same * distances.square() + (1 - same) * F.relu(MARGIN - distances).square()).mean()


def accuracy(distances: paddle.Tensor, same: paddle.Tensor) -> float:
    return ((distances < MARGIN / 2).astype("float32") == same).astype("float32").mean().item()


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Pairs(640), batch_size=BATCH, shuffle=True, drop_last=True)
    model = SignatureNet()
    optimizer = paddle.optimizer.Adam(5e-4, parameters=model.parameters())
    while True:
        accuracies = []
        for left, right, same in loader:
            distances = F.pairwise_distance(model(left), model(right))
            loss = contrastive_loss(distances, same)
            if not fixed:
                with paddle.no_grad():
                    distances = F.pairwise_distance(model(left), model(right))
            accuracies.append(accuracy(distances, same))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=90)
