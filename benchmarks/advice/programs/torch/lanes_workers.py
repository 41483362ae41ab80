"""Train a network that finds the lanes of a road, with batches of two images. Two workers load the images and augment
them, with a seed per image. Fix, as often advised: four workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

IMAGES, HEIGHT, WIDTH, CROP_HEIGHT, CROP_WIDTH, CLASSES, BATCH = 300, 112, 176, 96, 160, 3, 2


class Roads(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images of roads with two lanes in perspective, cropped, mirrored and recoloured at random."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        rows, columns = np.mgrid[:HEIGHT, :WIDTH]
        vanishing = generator.uniform(0.3, 0.7, (IMAGES, 1, 1)) * WIDTH
        position = (columns - vanishing) / (rows + 8)
        self.masks = np.where(np.abs(position) < 0.5, 1 + (position > 0), 0).astype(np.uint8)
        noise = generator.integers(0, 60, (IMAGES, HEIGHT, WIDTH, 3), dtype=np.uint8)
        self.images = noise + (self.masks * 60)[..., None]

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = np.random.default_rng(index)
        top, left = generator.integers(HEIGHT - CROP_HEIGHT), generator.integers(WIDTH - CROP_WIDTH)
        area = np.s_[index, top : top + CROP_HEIGHT, left : left + CROP_WIDTH]
        image, mask = self.images[area].astype(np.float32) / 255, self.masks[area].astype(np.int64)
        if generator.random() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        image = (image * generator.uniform(0.7, 1.3, 3) + generator.uniform(-0.1, 0.1)).clip(0, 1)
        image = (image + generator.normal(0, 0.02, image.shape) - 0.45) / 0.25
        return (
            torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1), dtype=np.float32)),
            torch.from_numpy(np.ascontiguousarray(mask)),
        )


def stage(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()
    )


class LaneNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = stage(3, 12), stage(12, 24), stage(24, 48)
        self.up2, self.up1 = stage(48 + 24, 24), stage(24 + 12, 12)
        self.head = nn.Conv2d(12, CLASSES, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        fine = self.down1(images)
        middle = self.down2(F.max_pool2d(fine, 2))
        coarse = self.down3(F.max_pool2d(middle, 2))
        middle = self.up2(torch.cat([F.interpolate(coarse, scale_factor=2), middle], dim=1))
        return self.head(self.up1(torch.cat([F.interpolate(middle, scale_factor=2), fine], dim=1)))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    workers = 4 if fixed else 2
    loader = DataLoader(Roads(), batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=True)
    model = LaneNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for images, masks in loader:
            loss = F.cross_entropy(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=100)
