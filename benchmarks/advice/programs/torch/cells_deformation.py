"""Train a network that separates touching cells: the vectors of a cell's pixels come to lie close together. The
training process deforms the pictures itself. Fix: two DataLoader workers deform them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

Picture = tuple[np.ndarray, np.ndarray]
"""The brightness of the pixels, and their labels."""

PICTURES, SIZE, CELLS, VECTOR, BATCH = 2000, 192, 6, 6, 4


class Cells(Dataset):
    """Noisy pictures of discs of various brightness. Label 0 is the background. Each picture is deformed as if it were
    printed on rubber."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.centers = rng.uniform(24, SIZE - 24, (PICTURES, CELLS, 2))
        self.radii = rng.uniform(16, 32, (PICTURES, CELLS))
        frequencies = np.hypot(np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None, :])
        self.blurs = [np.exp(-0.5 * (2 * np.pi * width * frequencies) ** 2) for width in (9.0, 24.0)]
        self.rows, self.columns = np.mgrid[:SIZE, :SIZE]

    def __len__(self) -> int:
        return PICTURES

    def draw(self, index: int, rng: np.random.Generator) -> Picture:
        picture = rng.normal(0, 0.1, (SIZE, SIZE))
        labels = np.zeros((SIZE, SIZE), dtype=np.int64)
        for number, ((row, column), radius) in enumerate(zip(self.centers[index], self.radii[index], strict=True), 1):
            inside = (self.rows - row) ** 2 + (self.columns - column) ** 2 < radius**2
            picture[inside] += 0.3 + 0.1 * number
            labels[inside] = number
        return picture, labels

    def deform(self, picture: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Picture:
        """Move the pixels by smooth random fields. Interpolate the picture, and take the nearest label."""
        places = []
        for axis in (self.rows, self.columns):
            moved = axis.astype(np.float64)
            for blur, strength in zip(self.blurs, (3.0, 9.0), strict=True):
                field = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(SIZE, SIZE))) * blur, s=(SIZE, SIZE))
                moved += strength * field / field.std()
            places.append(np.clip(moved, 0, SIZE - 1.001))
        rows, columns = places
        top, left = rows.astype(np.int64), columns.astype(np.int64)
        down, right = rows - top, columns - left
        upper = picture[top, left] * (1 - right) + picture[top, left + 1] * right
        lower = picture[top + 1, left] * (1 - right) + picture[top + 1, left + 1] * right
        nearest = labels[rows.round().astype(np.int64), columns.round().astype(np.int64)]
        return upper * (1 - down) + lower * down, nearest

    def __getitem__(self, index: int) -> Picture:
        rng = np.random.default_rng(index)
        picture, labels = self.deform(*self.draw(index, rng), rng)
        picture = np.sign(picture) * np.abs(picture) ** rng.uniform(0.8, 1.25) * rng.uniform(0.8, 1.2)
        return ((picture - picture.mean()) / picture.std()).astype(np.float32)[None], labels[::2, ::2]


def convolutions(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class PixelVectors(nn.Module):
    """A small U-Net that has a vector for every second pixel of every second row."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.middle, self.coarse = convolutions(1, 8, 2), convolutions(8, 12, 2), convolutions(12, 16, 2)
        self.up1, self.up2 = convolutions(16 + 12, 12), convolutions(12 + 8, 8)
        self.head = nn.Conv2d(8, VECTOR, 1)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        fine = self.fine(pictures)
        middle = self.middle(fine)
        x = self.coarse(middle)
        x = self.up1(torch.cat([F.interpolate(x, scale_factor=2), middle], dim=1))
        return self.head(self.up2(torch.cat([F.interpolate(x, scale_factor=2), fine], dim=1)))


def discriminative_loss(vectors: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Pull the vectors of a cell's pixels to their mean, and push the means of different cells apart."""
    members = F.one_hot(labels.flatten(1), CELLS + 1).float()
    counts = members.sum(1).clamp(min=1).unsqueeze(2)
    vectors = vectors.flatten(2).transpose(1, 2)
    means = members.transpose(1, 2) @ vectors / counts
    pull = F.relu((vectors - members @ means).norm(dim=2) - 0.5).square().mean()
    gaps = F.relu(3 - torch.cdist(means, means + 1e-4)).square()
    return pull + gaps.triu(1).mean()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(Cells(), batch_size=BATCH, shuffle=True, num_workers=2 if fixed else 0)
    model = PixelVectors()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses: deque[float] = deque(maxlen=50)
    while True:
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss = discriminative_loss(model(pictures), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            yield


if __name__ == "__main__":
    run(training, "torch", steps=120)
