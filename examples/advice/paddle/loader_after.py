"""Load slow samples (4 ms each) with four worker processes, ahead of the training."""

from __future__ import annotations

import time

import numpy as np
import paddle
from measured import measured
from paddle.io import DataLoader, Dataset

BATCH, ROWS, WIDTH = 8, 32, 256


class SlowFiles(Dataset):
    """Samples from a slow source, such as a network file system or a decoder."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(0.004)
        return np.full((ROWS, WIDTH), index % 7, "float32")


def main() -> None:
    paddle.seed(0)
    model = paddle.nn.Sequential(*[paddle.nn.Linear(WIDTH, WIDTH) for _ in range(12)])
    optimizer = paddle.optimizer.SGD(1e-6, parameters=model.parameters())
    loader = DataLoader(SlowFiles(), batch_size=BATCH, num_workers=4, persistent_workers=True, use_buffer_reader=False)

    def train(batch: list[paddle.Tensor]) -> None:
        optimizer.clear_grad()
        model(batch[0]).mean().backward()
        optimizer.step()

    measured(loader, train)


if __name__ == "__main__":
    main()
