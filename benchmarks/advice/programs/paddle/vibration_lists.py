"""Train an autoencoder that removes the noise from the vibrations of a machine. Recordings come from a file of JSON
lines, and each step builds its tensors from nested lists of numbers. Fix: one NumPy array of all recordings."""

from __future__ import annotations

import json
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

RECORDINGS, SAMPLES, BATCH = 768, 512, 192


def write_recordings(path: Path) -> None:
    """Two harmonics of a turning shaft with and without the noise of a cheap sensor."""
    rng = np.random.default_rng(0)
    times = np.arange(SAMPLES) / SAMPLES
    with path.open("w") as lines:
        for _ in range(RECORDINGS):
            speed, phase, strength = rng.uniform(2, 20), rng.uniform(0, 2 * np.pi), rng.uniform(0.1, 0.5)
            clean = np.sin(2 * np.pi * speed * times + phase) + strength * np.sin(4 * np.pi * speed * times)
            noisy = clean + 0.3 * rng.normal(size=SAMPLES)
            lines.write(json.dumps({"noisy": noisy.round(4).tolist(), "clean": clean.round(4).tolist()}) + "\n")


def read_recordings() -> tuple[list[list[float]], list[list[float]]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recordings.jsonl"
        write_recordings(path)
        recordings = [json.loads(line) for line in path.read_text().splitlines()]
    return [recording["noisy"] for recording in recordings], [recording["clean"] for recording in recordings]


def autoencoder() -> nn.Layer:
    return nn.Sequential(
        nn.Linear(SAMPLES, 192),
        nn.LayerNorm(192),
        nn.ReLU(),
        nn.Linear(192, 64),
        nn.ReLU(),
        nn.Linear(64, 192),
        nn.LayerNorm(192),
        nn.ReLU(),
        nn.Linear(192, SAMPLES),
    )


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(1)
    noisy, clean = read_recordings()
    if fixed:
        noisy_array, clean_array = np.array(noisy, dtype=np.float32), np.array(clean, dtype=np.float32)
    model = autoencoder()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    ratios = []
    while True:
        order = rng.permutation(RECORDINGS)
        for start in range(0, RECORDINGS, BATCH):
            picked = order[start : start + BATCH]
            if fixed:
                inputs, targets = paddle.to_tensor(noisy_array[picked]), paddle.to_tensor(clean_array[picked])
            else:
                inputs = paddle.to_tensor([noisy[i] for i in picked], dtype="float32")
                targets = paddle.to_tensor([clean[i] for i in picked], dtype="float32")
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield
        ratios.append(10 * np.log10(targets.square().mean().item() / loss.item()))


if __name__ == "__main__":
    run(training, "paddle", steps=400)
