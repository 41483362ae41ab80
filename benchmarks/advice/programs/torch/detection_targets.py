"""Train a one-stage detector with anchors. The targets are found image by image and box by box in a loop. Fix: the
overlaps of all boxes and anchors of the batch are computed at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

IMAGE, STRIDE, CLASSES, BATCH, MAX_BOXES, THRESHOLD = 128, 8, 5, 8, 20, 0.5
SIZES = (16.0, 32.0, 64.0)


def anchor_boxes() -> torch.Tensor:
    centers = (torch.arange(IMAGE // STRIDE) + 0.5) * STRIDE
    y, x = torch.meshgrid(centers, centers, indexing="ij")
    center = torch.stack([x, y], dim=-1).view(-1, 1, 2)
    half = torch.tensor(SIZES).view(1, -1, 1) / 2
    return torch.cat([center - half, center + half], dim=-1).view(-1, 4)


def overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    common = sides.prod(dim=-1)
    areas = (a[..., 2:] - a[..., :2]).prod(dim=-1) + (b[..., 2:] - b[..., :2]).prod(dim=-1)
    return common / (areas - common)


def encode(boxes: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    sizes, anchor_sizes = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    shifts = (boxes[..., :2] + boxes[..., 2:] - anchors[..., :2] - anchors[..., 2:]) / (2 * anchor_sizes)
    return torch.cat([shifts, torch.log(sizes / anchor_sizes)], dim=-1)


def targets_in_loops(
    boxes: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor, anchors: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    classes = torch.zeros(len(boxes), len(anchors), dtype=torch.long)
    offsets = torch.zeros(len(boxes), len(anchors), 4)
    for image in range(len(boxes)):
        best = torch.full((len(anchors),), THRESHOLD)
        for i in range(int(counts[image])):
            box = boxes[image, i]
            overlaps = overlap(box, anchors)
            better = overlaps > best
            best[better] = overlaps[better]
            classes[image, better] = labels[image, i]
            offsets[image, better] = encode(box, anchors[better])
    return classes, offsets


def targets_at_once(
    boxes: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor, anchors: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    overlaps = overlap(boxes.unsqueeze(2), anchors)
    overlaps = overlaps.masked_fill((torch.arange(MAX_BOXES) >= counts.unsqueeze(1)).unsqueeze(2), 0.0)
    best, owner = overlaps.max(dim=1)
    found = best > THRESHOLD
    classes = labels.gather(1, owner) * found
    owned = boxes.gather(1, owner.unsqueeze(2).expand(-1, -1, 4))
    return classes, encode(owned, anchors) * found.unsqueeze(2)


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.backbone = nn.Sequential(*layers, nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
        self.head = nn.Conv2d(64, len(SIZES) * (CLASSES + 1 + 4), 3, padding=1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.head(self.backbone(images)).permute(0, 2, 3, 1).reshape(len(images), -1, CLASSES + 1 + 4)
        return outputs[..., : CLASSES + 1], outputs[..., CLASSES + 1 :]


def scenes(number: int) -> TensorDataset:
    centers, sizes = torch.rand(number, MAX_BOXES, 2) * IMAGE, torch.rand(number, MAX_BOXES, 2) * 56 + 12
    boxes = torch.cat([centers - sizes / 2, centers + sizes / 2], dim=2)
    labels = torch.randint(1, CLASSES + 1, (number, MAX_BOXES))
    counts = torch.randint(1, MAX_BOXES + 1, (number,))
    return TensorDataset(torch.rand(number, 3, IMAGE, IMAGE), boxes, labels, counts)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(scenes(320), BATCH, shuffle=True)
    anchors = anchor_boxes()
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    find_targets = targets_at_once if fixed else targets_in_loops
    while True:
        for images, boxes, labels, counts in loader:
            classes, offsets = find_targets(boxes, labels, counts, anchors)
            logits, predicted = model(images)
            positive = classes > 0
            loss = F.cross_entropy(logits.flatten(0, 1), classes.flatten())
            loss = loss + F.smooth_l1_loss(predicted[positive], offsets[positive])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=100)
