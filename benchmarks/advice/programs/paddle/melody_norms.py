"""Train a transformer that continues melodies. After every step, the norms of the gradients of all layers are read and
appended to a table of comma-separated values. Fix: every 50 steps."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

NOTES, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 130, 64, 64, 4, 6, 8


class MelodyModel(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.notes, self.places = nn.Embedding(NOTES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", normalize_before=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, NOTES)
        self.register_buffer("mask", paddle.triu(paddle.full([LENGTH, LENGTH], -1e9), 1))

    def forward(self, melodies: paddle.Tensor) -> paddle.Tensor:
        x = self.notes(melodies) + self.places(paddle.arange(melodies.shape[1]))
        return self.head(self.layers(x, self.mask))


def melodies(count: int) -> np.ndarray:
    """Random walks over the keys of a piano."""
    rng = np.random.default_rng(0)
    intervals = rng.integers(-4, 5, (count, LENGTH + 1))
    return np.clip(64 + intervals.cumsum(1), 0, NOTES - 1)


def log_norms(path: Path, step: int, model: nn.Layer) -> None:
    row: list[float] = [step]
    for parameter in model.parameters():
        row.append(float(np.linalg.norm(parameter.grad.numpy())))
    with path.open("a", newline="") as file:
        csv.writer(file).writerow(row)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    corpus = paddle.to_tensor(melodies(2000))
    model = MelodyModel()
    clip = nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.AdamW(5e-4, parameters=model.parameters(), grad_clip=clip)
    log_every = 50 if fixed else 1
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gradients.csv"
        while True:
            batch = corpus[paddle.randint(0, len(corpus), [BATCH])]
            loss = F.cross_entropy(model(batch[:, :-1]), batch[:, 1:])
            loss.backward()
            if step % log_every == 0:
                log_norms(path, step, model)
            optimizer.step()
            optimizer.clear_grad()
            step += 1
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
