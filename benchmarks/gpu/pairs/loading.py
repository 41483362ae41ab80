"""Pairs about data loaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.gpu.pairs.pair import DevicePair
from benchmarks.gpu.training import Place, Training, perceptron

BATCH, EPOCH = 16, 10
"""Images of a batch, and batches of a short epoch."""


class Images(torch.utils.data.Dataset[Any]):
    """Images that are smoothed with numpy, ``rounds`` times. A round takes about 0.1 ms."""

    def __init__(self, pixels: int, rounds: int, batches: int = 1 << 16) -> None:
        self.images = np.random.default_rng(0).standard_normal((64, pixels, pixels)).astype(np.float32)
        self.rounds, self.count = rounds, batches * BATCH

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        image = self.images[at % len(self.images)]
        for _ in range(self.rounds):
            image = (image + np.roll(image, 1, 0) + np.roll(image, 1, 1)) / 3
        return torch.from_numpy(np.ascontiguousarray(image)), at % 10


def train(place: Place, loader: Any) -> Training:
    """Train on the batches of the loader, epoch after epoch."""
    pixels = place.size(128, 16)
    net = nn.Sequential(nn.Flatten(), nn.Linear(pixels * pixels, 1024), perceptron(1024, place.size(6, 1)))
    net.to(place.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for images, labels in epochs(loader):
        images, labels = images.to(place.device, non_blocking=True), labels.to(place.device, non_blocking=True)
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def epochs(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def loader(place: Place, rounds: int, workers: int, batches: int = 1 << 16, **options: Any) -> Any:
    if workers:
        options |= {"multiprocessing_context": "fork"}  # what torch does on Linux before Python 3.14
    return torch.utils.data.DataLoader(
        Images(place.size(128, 16), rounds, batches), batch_size=BATCH, num_workers=workers,
        pin_memory=place.device == "cuda", **options,
    )  # fmt: skip


def no_workers(fixed: bool, place: Place) -> Training:
    return train(place, loader(place, place.size(12, 1), 4 if fixed else 0))


def light_loader(fixed: bool, place: Place) -> Training:
    """Batches are ready in no time, so workers do not help."""
    return train(place, loader(place, 0, 4 if fixed else 0))


def few_workers(fixed: bool, place: Place) -> Training:
    return train(place, loader(place, place.size(12, 1), 6 if fixed else 1))


def new_workers(fixed: bool, place: Place) -> Training:
    """Each epoch of ten batches starts its workers."""
    return train(place, loader(place, place.size(4, 1), 4, EPOCH, persistent_workers=fixed))


PAIRS = (
    DevicePair(
        no_workers, "perceptron on images", "the training process makes the batches", "four workers", "loader-workers",
        lead=10,
    ),
    DevicePair(
        light_loader, "perceptron on images", "a light loader without workers", "four workers", "loader-workers",
        lead=10,
    ),
    DevicePair(few_workers, "perceptron on images", "one worker", "six workers", "more-workers", lead=14),
    DevicePair(
        new_workers, "perceptron on images", "each epoch starts four workers", "persistent workers", "epoch-gap",
        every=EPOCH, steps=3 * EPOCH,
    ),
)  # fmt: skip
