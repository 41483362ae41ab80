"""Train a CRNN that reads number plates: convolutions, a recurrent layer over the columns, and the CTC loss. The loss
is read and printed in every step. Fix: it is printed every 50 steps. (On a CPU, nothing waits for that.)"""

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

PLATES, HEIGHT, GLYPH, PLACES, CHARACTERS, BATCH = 800, 16, 12, 6, 36, 16


class Plates(Dataset):
    """Pictures of plates: glyphs side by side, with dirt on them. Character 0 is the blank of the loss."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        glyphs = (rng.random((CHARACTERS + 1, HEIGHT // 2, GLYPH // 2)) < 0.4).repeat(2, axis=1).repeat(2, axis=2)
        self.texts = rng.integers(1, CHARACTERS + 1, (PLATES, PLACES)).astype(np.int32)
        pictures = glyphs[self.texts].transpose(0, 2, 1, 3).reshape(PLATES, 1, HEIGHT, PLACES * GLYPH)
        self.pictures = pictures.astype(np.float32) + rng.normal(0, 0.2, pictures.shape).astype(np.float32)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        picture = self.pictures[index]
        return (picture - picture.mean()) / picture.std(), self.texts[index]

    def __len__(self) -> int:
        return PLATES


class Reader(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2D(1, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2),
            nn.Conv2D(24, 48, 3, padding=1),
            nn.BatchNorm2D(48),
            nn.ReLU(),
            nn.MaxPool2D((2, 1)),
            nn.Conv2D(48, 64, 3, padding=1),
            nn.BatchNorm2D(64),
            nn.ReLU(),
            nn.MaxPool2D((4, 1)),
        )
        self.recurrent = nn.LSTM(64, 48, direction="bidirect")
        self.head = nn.Linear(96, CHARACTERS + 1)

    def forward(self, pictures: paddle.Tensor) -> paddle.Tensor:
        columns = self.convolutions(pictures).squeeze(2).transpose([0, 2, 1])
        states, _ = self.recurrent(columns)
        return self.head(states)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    interval = 50 if fixed else 1
    loader = DataLoader(Plates(), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Reader()
    optimizer = paddle.optimizer.Adam(2e-3, parameters=model.parameters())
    columns = paddle.full([BATCH], PLACES * GLYPH // 2, dtype="int64")
    lengths = paddle.full([BATCH], PLACES, dtype="int64")
    step = 0
    while True:
        for pictures, texts in loader:
            scores = F.log_softmax(model(pictures).transpose([1, 0, 2]), axis=2)
            loss = F.ctc_loss(scores, texts, columns, lengths, blank=0)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            step += 1
            if step % interval == 0:
                print(f"step {step}: loss {loss.item():.4f}", file=sys.stderr)
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=120)
