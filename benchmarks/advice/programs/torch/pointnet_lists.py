"""Train a PointNet to classify clouds of points. The clouds are nested Python lists, as they were read from text files,
and each step makes a tensor of them. Fix: NumPy arrays, and torch.from_numpy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLASSES, CLOUDS, POINTS, FEATURES, BATCH = 10, 400, 512, 6, 16
"""A point has three coordinates and its normal."""


def layer(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU())


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Sequential(layer(FEATURES, 64), layer(64, 64), layer(64, 128), layer(128, 256))
        self.head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, CLASSES))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.head(self.points(points.transpose(1, 2)).amax(dim=2))


def make_clouds() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    classes = generator.integers(CLASSES, size=CLOUDS)
    normals = generator.normal(size=(CLOUDS, POINTS, 3)).astype(np.float32)
    normals /= np.linalg.norm(normals, axis=2, keepdims=True)
    stretch = np.linspace(0.5, 1.5, CLASSES, dtype=np.float32)[classes][:, None, None]
    coordinates = normals * np.concatenate([stretch, np.ones_like(stretch), 1 / stretch], axis=2)
    return np.concatenate([coordinates, normals], axis=2), classes


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    clouds, classes = make_clouds()
    cloud_lists, class_list = clouds.tolist(), classes.tolist()
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for rows in torch.randperm(CLOUDS).split(BATCH):
            if fixed:
                points = torch.from_numpy(clouds[rows.numpy()])
                labels = torch.from_numpy(classes[rows.numpy()])
            else:
                points = torch.tensor([cloud_lists[row] for row in rows.tolist()])
                labels = torch.tensor([class_list[row] for row in rows.tolist()])
            loss = F.cross_entropy(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
