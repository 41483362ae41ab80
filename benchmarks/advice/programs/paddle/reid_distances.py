"""Train a network that recognises people in the images of different cameras, with the batch-hard triplet loss. A loop
over the anchors calculates their distances to all other images. Fix: all distances at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import BatchSampler, DataLoader, Dataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PEOPLE, IMAGES_PER_PERSON, HEIGHT, WIDTH, EMBEDDING = 200, 8, 48, 24, 64
BATCH_PEOPLE, BATCH_IMAGES, MARGIN = 16, 4, 0.3


class Crops(Dataset):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.labels = np.arange(PEOPLE).repeat(IMAGES_PER_PERSON)
        looks = rng.uniform(0, 1, (PEOPLE, 3, HEIGHT // 8, WIDTH // 8)).repeat(8, axis=2).repeat(8, axis=3)
        noise = 0.3 * rng.standard_normal((len(self.labels), 3, HEIGHT, WIDTH))
        self.images = (looks[self.labels] + noise).astype("float32")

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        return self.images[index], self.labels[index]

    def __len__(self) -> int:
        return len(self.labels)


class PeopleSampler(BatchSampler):
    """Batches with the same number of images of each of some people."""

    def __init__(self, batches: int) -> None:
        super().__init__(sampler=range(PEOPLE * IMAGES_PER_PERSON), batch_size=BATCH_PEOPLE * BATCH_IMAGES)
        self.batches = batches
        self.rng = np.random.default_rng(1)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self.batches):
            people = self.rng.choice(PEOPLE, BATCH_PEOPLE, replace=False)
            yield [
                int(person * IMAGES_PER_PERSON + image)
                for person in people
                for image in self.rng.choice(IMAGES_PER_PERSON, BATCH_IMAGES, replace=False)
            ]

    def __len__(self) -> int:
        return self.batches


def convolution(inputs: int, outputs: int) -> nn.Layer:
    return nn.Sequential(nn.Conv2D(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2D(outputs), nn.ReLU())


def distances(embeddings: paddle.Tensor, at_once: bool) -> paddle.Tensor:
    if at_once:
        squares = ((embeddings.unsqueeze(1) - embeddings.unsqueeze(0)) ** 2).sum(axis=-1)
    else:
        rows = []
        for i in range(embeddings.shape[0]):
            rows.append(((embeddings[i] - embeddings) ** 2).sum(axis=-1))
        squares = paddle.stack(rows)
    return paddle.sqrt(squares + 1e-12)


def triplet_loss(between: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    same = (labels.unsqueeze(1) == labels.unsqueeze(0)).astype("float32")
    farthest_same = (between * same).max(axis=1)
    nearest_other = (between + 1e6 * same).min(axis=1)
    return F.relu(farthest_same - nearest_other + MARGIN).mean()


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    loader = DataLoader(Crops(), batch_sampler=PeopleSampler(100))
    model = nn.Sequential(
        convolution(3, 16),
        convolution(16, 32),
        convolution(32, 64),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
        nn.Linear(64, EMBEDDING),
    )
    optimizer = paddle.optimizer.Adam(learning_rate=3e-4, parameters=model.parameters(), weight_decay=5e-4)
    while True:
        for images, labels in loader:
            loss = triplet_loss(distances(model(images), at_once=fixed), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=90)
