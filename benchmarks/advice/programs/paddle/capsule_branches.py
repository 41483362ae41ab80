"""Train a capsule network with dynamic routing on 28x28 images. Every primary capsule has its own linear layer, and a
loop runs the capsules one after the other. Fix: one linear layer for all capsules, and a reshape."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, CLASSES, FEATURES, BATCH = 28, 10, 256, 32
CAPSULES, DIMENSIONS, CLASS_DIMENSIONS, ROUTINGS = 64, 8, 16, 3


def squash(vectors: paddle.Tensor) -> paddle.Tensor:
    """Shrink the vectors to lengths between 0 and 1."""
    squares = (vectors**2).sum(axis=-1, keepdim=True)
    return vectors * squares / ((1.0 + squares) * paddle.sqrt(squares + 1e-8))


class PrimaryCapsules(nn.Layer):
    def __init__(self, together: bool) -> None:
        super().__init__()
        self.together = together
        if together:
            self.capsules = nn.Linear(FEATURES, CAPSULES * DIMENSIONS)
        else:
            self.capsules = nn.LayerList([nn.Linear(FEATURES, DIMENSIONS) for _ in range(CAPSULES)])

    def forward(self, features: paddle.Tensor) -> paddle.Tensor:
        if self.together:
            return squash(self.capsules(features).reshape([0, CAPSULES, DIMENSIONS]))
        return squash(paddle.stack([capsule(features) for capsule in self.capsules], axis=1))


class ClassCapsules(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter(
            [CLASSES, CAPSULES, DIMENSIONS, CLASS_DIMENSIONS], default_initializer=nn.initializer.Normal(std=0.1)
        )

    def forward(self, capsules: paddle.Tensor) -> paddle.Tensor:
        votes = paddle.einsum("bni,cnid->bcnd", capsules, self.weight)
        logits = paddle.zeros([capsules.shape[0], CLASSES, CAPSULES, 1])
        for routing in range(ROUTINGS):
            outputs = squash((F.softmax(logits, axis=1) * votes).sum(axis=2, keepdim=True))
            if routing < ROUTINGS - 1:
                logits = logits + (votes * outputs).sum(axis=-1, keepdim=True)
        return outputs.squeeze(2)


class CapsuleNetwork(nn.Layer):
    def __init__(self, together: bool) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2D(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2D(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * (SIZE // 4) ** 2, FEATURES),
            nn.ReLU(),
        )
        self.primary = PrimaryCapsules(together)
        self.classes = ClassCapsules()

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        capsules = self.classes(self.primary(self.features(images)))
        return paddle.sqrt((capsules**2).sum(axis=-1) + 1e-8)


def margin_loss(lengths: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    present = F.one_hot(labels, CLASSES)
    too_short, too_long = F.relu(0.9 - lengths) ** 2, F.relu(lengths - 0.1) ** 2
    return (present * too_short + 0.5 * (1.0 - present) * too_long).sum(axis=1).mean()


def drawings(count: int) -> TensorDataset:
    """Noisy copies of one drawing for each class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, count)
    images = rng.uniform(0, 1, (CLASSES, 1, SIZE, SIZE))[labels] + 0.3 * rng.standard_normal((count, 1, SIZE, SIZE))
    return TensorDataset([paddle.to_tensor(images.astype("float32")), paddle.to_tensor(labels)])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(drawings(3000), batch_size=BATCH, shuffle=True, drop_last=True)
    model = CapsuleNetwork(together=fixed)
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=model.parameters())
    while True:
        for images, labels in loader:
            loss = margin_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=80)
