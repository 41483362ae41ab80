"""Load data with four worker processes. Each worker uses one numpy thread."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import paddle
from measured import measured
from paddle.io import DataLoader, Dataset

BATCH = 8


class Projected(Dataset):
    """Samples that numpy multiplies by a matrix."""

    def __init__(self) -> None:
        self.matrix = np.random.default_rng(0).standard_normal((384, 384), "float32")

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> np.ndarray:
        return (self.matrix @ self.matrix)[0, :256]


def main() -> None:
    paddle.seed(0)
    model = paddle.nn.Sequential(*[paddle.nn.Linear(256, 256) for _ in range(16)])
    optimizer = paddle.optimizer.SGD(1e-6, parameters=model.parameters())
    loader = DataLoader(Projected(), batch_size=BATCH, num_workers=4, persistent_workers=True)

    def train(batch: list[paddle.Tensor]) -> None:
        optimizer.clear_grad()
        model(batch[0]).mean().backward()
        optimizer.step()

    measured(loader, train)


if __name__ == "__main__":
    main()
