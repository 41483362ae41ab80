"""Train a PixelCNN that draws small colour pictures, pixel by pixel and colour by colour. Each masked convolution
builds its mask again in every forward pass. Fix: the mask is built once and kept in a buffer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PICTURES, SIZE, LEVELS, WIDTH, BLOCKS, BATCH = 800, 8, 8, 24, 5, 8


class Pictures(Dataset):
    """Pictures of two colours with a straight border between them, in a few levels of brightness."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        rows, columns = np.mgrid[:SIZE, :SIZE] - SIZE / 2
        angles = rng.uniform(0, 2 * np.pi, (PICTURES, 1, 1))
        side = (np.cos(angles) * rows + np.sin(angles) * columns > 0).astype(int)
        colours = rng.integers(0, LEVELS, (PICTURES, 2, 3))
        pictures = colours[np.arange(PICTURES)[:, None, None], side].transpose(0, 3, 1, 2)
        self.pictures = np.clip(pictures + rng.integers(-1, 2, pictures.shape), 0, LEVELS - 1)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.pictures[index]

    def __len__(self) -> int:
        return PICTURES


class MaskedConv(nn.Conv2D):
    """A convolution that sees the pixels above and to the left, and of the pixel itself the colours that come before.
    Channel i belongs to colour i % 3. A layer of kind B also sees the colour itself."""

    def __init__(self, kind: str, inputs: int, outputs: int, size: int, buffered: bool) -> None:
        super().__init__(inputs, outputs, size, padding=size // 2)
        self.kind, self.buffered = kind, buffered
        if buffered:
            self.register_buffer("mask", self.build_mask(), persistable=False)

    def build_mask(self) -> paddle.Tensor:
        mask = paddle.zeros(self.weight.shape)
        middle = self.weight.shape[2] // 2
        mask[:, :, :middle] = 1
        mask[:, :, middle, :middle] = 1
        for output in range(3):
            for before in range(output + (self.kind == "B")):
                mask[output::3, before::3, middle, middle] = 1
        return mask

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        mask = self.mask if self.buffered else self.build_mask()
        return F.conv2d(x, self.weight * mask, self.bias, padding=self.weight.shape[2] // 2)


class Block(nn.Layer):
    def __init__(self, buffered: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            MaskedConv("B", WIDTH, WIDTH // 2, 1, buffered),
            nn.ReLU(),
            MaskedConv("B", WIDTH // 2, WIDTH // 2, 3, buffered),
            nn.ReLU(),
            MaskedConv("B", WIDTH // 2, WIDTH, 1, buffered),
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x + self.layers(x)


def pixelcnn(buffered: bool) -> nn.Layer:
    return nn.Sequential(
        MaskedConv("A", 3, WIDTH, 5, buffered),
        *[Block(buffered) for _ in range(BLOCKS)],
        nn.ReLU(),
        MaskedConv("B", WIDTH, 3 * LEVELS, 1, buffered),
    )


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Pictures(), batch_size=BATCH, shuffle=True, drop_last=True)
    model = pixelcnn(fixed)
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        losses = []
        for pictures in loader:
            logits = model(pictures.astype("float32") / (LEVELS / 2) - 1)
            logits = logits.reshape([BATCH, LEVELS, 3, SIZE, SIZE]).transpose([0, 2, 3, 4, 1])
            loss = F.cross_entropy(logits, pictures)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(loss.detach())
            yield
        bits = float(paddle.stack(losses).mean()) / np.log(2)
        print(f"{bits:.3f} bits for each colour of a pixel", file=sys.stderr)


if __name__ == "__main__":
    run(training, "paddle", steps=450)
