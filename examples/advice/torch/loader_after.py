"""Load slow samples (4 ms each) with four worker processes, ahead of the training."""

from __future__ import annotations

import time

import torch
from measured import layers, measured
from torch.utils.data import DataLoader, Dataset

BATCH, ROWS, WIDTH = 8, 32, 256


class SlowFiles(Dataset):
    """Samples from a slow source, such as a network file system or a decoder."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.full((ROWS, WIDTH), float(index % 7))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = layers(12, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    loader = DataLoader(SlowFiles(), batch_size=BATCH, num_workers=4, persistent_workers=True)

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

    measured(loader, train)


if __name__ == "__main__":
    main()
