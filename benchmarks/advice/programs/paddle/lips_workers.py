"""Train a lip reader: short clips of a mouth, and the word that it says. The clips are equalised, turned, moved
and shrunk in the process of the training. Fix: two workers of the DataLoader do that."""

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

CLIPS, FRAMES, HEIGHT, WIDTH, WORDS, BATCH = 240, 12, 48, 64, 20, 8
DRAWS = 40_000


def equalised(frame: np.ndarray) -> np.ndarray:
    """The frame, with its brightness spread over the whole range."""
    share = np.cumsum(np.bincount(frame.ravel(), minlength=256)) / frame.size
    return (255 * share).astype(np.float32)[frame]


class Mouths(Dataset):
    """Clips of a mouth that opens and closes in the rhythm of a word. Each draw is a clip with its own augmentation."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.words = rng.integers(0, WORDS, CLIPS)
        rhythms = rng.uniform(2, 14, (WORDS, FRAMES, 1, 1))
        self.rows, self.columns = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
        lips = ((self.columns - WIDTH / 2) / 22) ** 2 + ((self.rows - HEIGHT / 2) / rhythms) ** 2
        noise = rng.integers(0, 40, (CLIPS, FRAMES, HEIGHT, WIDTH))
        self.clips = (np.where(lips[self.words] < 1, 60, 180) + noise).astype(np.uint8)

    def turned(self, frame: np.ndarray, angle: float, shift: np.ndarray) -> np.ndarray:
        """The frame, rotated around its middle and moved, with bilinear interpolation."""
        sine, cosine = np.float32(np.sin(angle)), np.float32(np.cos(angle))
        y, x = self.rows - HEIGHT / 2, self.columns - WIDTH / 2
        rows = np.clip(cosine * y - sine * x + HEIGHT / 2 + shift[0], 0, HEIGHT - 1.001)
        columns = np.clip(sine * y + cosine * x + WIDTH / 2 + shift[1], 0, WIDTH - 1.001)
        top, left = rows.astype(int), columns.astype(int)
        down, right = rows - top, columns - left
        upper = frame[top, left] * (1 - right) + frame[top, left + 1] * right
        lower = frame[top + 1, left] * (1 - right) + frame[top + 1, left + 1] * right
        return upper * (1 - down) + lower * down

    def __getitem__(self, draw: int) -> tuple[np.ndarray, np.int64]:
        rng = np.random.default_rng(draw)
        number = rng.integers(CLIPS)
        angles = rng.uniform(-0.3, 0.3) + rng.normal(0, 0.02, FRAMES)
        shifts = rng.uniform(-3, 3, 2) + rng.normal(0, 0.3, (FRAMES, 2))
        placed = zip(self.clips[number], angles, shifts, strict=True)
        frames = [self.turned(equalised(frame), angle, shift) for frame, angle, shift in placed]
        clip = np.stack(frames).reshape(FRAMES, HEIGHT // 2, 2, WIDTH // 2, 2).mean(axis=(2, 4)) / 255
        clip = np.clip(clip * rng.uniform(0.7, 1.3), 0, 1) ** rng.uniform(0.8, 1.25)
        clip = (clip - clip.mean()) / clip.std()
        return clip[None].astype(np.float32), self.words[number]

    def __len__(self) -> int:
        return DRAWS


class LipReader(nn.Layer):
    """A convolution over space and time, convolutions of each frame, and a recurrent layer over the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv3D(1, 8, (3, 5, 5), stride=(1, 2, 2), padding=(1, 2, 2))
        self.trunk = nn.Sequential(
            nn.Conv2D(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2D(16, 32, 3, stride=2, padding=1), nn.ReLU()
        )
        self.recurrent = nn.GRU(32, 48)
        self.head = nn.Linear(48, WORDS)

    def forward(self, clips: paddle.Tensor) -> paddle.Tensor:
        x = F.relu(self.front(clips)).transpose([0, 2, 1, 3, 4]).flatten(0, 1)
        frames = self.trunk(x).mean(axis=[2, 3]).reshape([-1, FRAMES, 32])
        states, _ = self.recurrent(frames)
        return self.head(states.mean(axis=1))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    loader = DataLoader(Mouths(), batch_size=BATCH, num_workers=2 if fixed else 0, use_shared_memory=False)
    model = LipReader()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    correct = 0.0
    for clips, words in loader:
        logits = model(clips)
        loss = F.cross_entropy(logits, words)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        correct = 0.95 * correct + 0.05 * float((logits.argmax(axis=1) == words).astype("float32").mean())
        yield
    print(f"accuracy of the last steps: {correct:.3f}", file=sys.stderr)


if __name__ == "__main__":
    run(training, "paddle", steps=150)
