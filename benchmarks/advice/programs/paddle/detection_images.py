"""Train a one-stage object detector with anchors. The loss is computed in a loop over the images of the batch.
Fix: the loss of the whole batch at once, with masks."""

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

SIZE, STRIDE, CLASSES, BATCH = 96, 8, 10, 16
ANCHOR_SIZES = (16, 32, 48)


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Layer:
    layers = [nn.Conv2D(inputs, outputs, 3, stride, 1, bias_attr=False), nn.BatchNorm2D(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class Detector(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 64, 2), conv(64, 64))
        self.classes = nn.Conv2D(64, len(ANCHOR_SIZES) * (CLASSES + 1), 3, padding=1)
        self.boxes = nn.Conv2D(64, len(ANCHOR_SIZES) * 4, 3, padding=1)

    def forward(self, images: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        x = self.backbone(images)
        scores, boxes = (head(x).transpose([0, 2, 3, 1]).flatten(1) for head in (self.classes, self.boxes))
        return scores.reshape([len(images), -1, CLASSES + 1]), boxes.reshape([len(images), -1, 4])


def loss_by_image(
    scores: paddle.Tensor, boxes: paddle.Tensor, labels: paddle.Tensor, offsets: paddle.Tensor
) -> paddle.Tensor:
    losses = []
    for i in range(len(labels)):
        used, positive = labels[i] >= 0, labels[i] > 0
        found = positive.sum().astype("float32").clip(min=1)
        class_loss = F.cross_entropy(scores[i][used], labels[i][used], reduction="sum")
        box_loss = F.smooth_l1_loss(boxes[i][positive], offsets[i][positive], reduction="sum")
        losses.append((class_loss + box_loss) / found)
    return paddle.stack(losses).mean()


def loss_of_batch(
    scores: paddle.Tensor, boxes: paddle.Tensor, labels: paddle.Tensor, offsets: paddle.Tensor
) -> paddle.Tensor:
    positive = (labels > 0).astype("float32")
    found = positive.sum(axis=1).clip(min=1)
    class_losses = F.cross_entropy(scores, labels, ignore_index=-1, reduction="none").flatten(1).sum(axis=1)
    box_losses = F.smooth_l1_loss(boxes, offsets, reduction="none").sum(axis=2) * positive
    return ((class_losses + box_losses.sum(axis=1)) / found).mean()


def anchors() -> np.ndarray:
    """Center x, center y, width, height."""
    centers = np.arange(STRIDE / 2, SIZE, STRIDE)
    y, x, size = np.meshgrid(centers, centers, ANCHOR_SIZES, indexing="ij")
    return np.stack([x, y, size, size], axis=-1).reshape(-1, 4)


def match(places: np.ndarray, objects: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each anchor, the class of its object (0: background, -1: unclear) and the offset to its box."""
    low = np.maximum(
        *np.broadcast_arrays((places[:, :2] - places[:, 2:] / 2)[:, None], objects[:, :2] - objects[:, 2:] / 2)
    )
    high = np.minimum(
        *np.broadcast_arrays((places[:, :2] + places[:, 2:] / 2)[:, None], objects[:, :2] + objects[:, 2:] / 2)
    )
    shared = (high - low).clip(min=0).prod(axis=2)
    overlap = shared / (places[:, 2:].prod(axis=1)[:, None] + objects[:, 2:].prod(axis=1) - shared)
    nearest = overlap.argmax(axis=1)
    best = overlap.max(axis=1)
    labels = np.where(best >= 0.5, classes[nearest], np.where(best < 0.4, 0, -1))
    boxes = objects[nearest]
    offsets = np.concatenate([(boxes[:, :2] - places[:, :2]) / places[:, 2:], np.log(boxes[:, 2:] / places[:, 2:])], 1)
    return labels, offsets.astype("float32")


def scenes(count: int) -> TensorDataset:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((count, 3, SIZE, SIZE), dtype="float32")
    matches = []
    for _ in range(count):
        found = rng.integers(1, 6)
        objects = np.concatenate([rng.uniform(16, SIZE - 16, (found, 2)), rng.uniform(14, 52, (found, 2))], axis=1)
        matches.append(match(anchors(), objects, rng.integers(1, CLASSES + 1, found)))
    labels, offsets = (np.stack(values) for values in zip(*matches, strict=True))
    return TensorDataset([paddle.to_tensor(values) for values in (images, labels, offsets)])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(scenes(320), batch_size=BATCH, shuffle=True, drop_last=True)
    detector = Detector()
    optimizer = paddle.optimizer.Momentum(learning_rate=1e-3, parameters=detector.parameters(), weight_decay=1e-4)
    compute_loss = loss_of_batch if fixed else loss_by_image
    while True:
        for images, labels, offsets in loader:
            scores, boxes = detector(images)
            loss = compute_loss(scores, boxes, labels, offsets)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
