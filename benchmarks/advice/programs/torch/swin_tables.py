"""Train a small Swin transformer on 64x64 images. Every block builds its index of relative positions, and the mask of
its shifted windows, in every forward pass. Fix: both are buffers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, PATCH, WINDOW, WIDTH, HEADS, BLOCKS, CLASSES, BATCH = 64, 4, 4, 64, 4, 4, 20, 8
GRID = SIZE // PATCH


def relative_index() -> torch.Tensor:
    """For each pair of places in a window, the row of the table of biases."""
    rows, columns = torch.arange(WINDOW), torch.arange(WINDOW)
    places = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).flatten(1)
    offsets = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0).contiguous()
    offsets = offsets + (WINDOW - 1)
    return offsets[..., 0] * (2 * WINDOW - 1) + offsets[..., 1]


def windows(x: torch.Tensor) -> torch.Tensor:
    """Cut (batch, rows, columns, width) into (batch, windows, places, width)."""
    batch, _, _, width = x.shape
    x = x.view(batch, GRID // WINDOW, WINDOW, GRID // WINDOW, WINDOW, width).transpose(2, 3)
    return x.reshape(batch, -1, WINDOW * WINDOW, width)


def shifted_mask(shift: int) -> torch.Tensor:
    """Minus infinity for pairs of places that meet in a window only because the image was rolled."""
    regions = torch.zeros(1, GRID, GRID, 1)
    borders = (slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None))
    for number, (rows, columns) in enumerate(product(borders, borders)):
        regions[:, rows, columns, :] = number
    of_windows = windows(regions).squeeze(-1).squeeze(0)
    apart = of_windows[:, None, :] != of_windows[:, :, None]
    return torch.zeros(apart.shape).masked_fill(apart, float("-inf"))


class Block(nn.Module):
    def __init__(self, shift: int, buffered: bool) -> None:
        super().__init__()
        self.shift, self.buffered = shift, buffered
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.biases = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, HEADS) * 0.02)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        if buffered:
            self.register_buffer("index", relative_index())
            self.register_buffer("mask", shifted_mask(shift) if shift else None)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        if self.buffered:
            index, mask = self.index, self.mask
        else:
            index, mask = relative_index(), shifted_mask(self.shift) if self.shift else None
        bias = self.biases[index].permute(2, 0, 1)
        if mask is not None:
            bias = bias + mask[:, None]
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(3, 0, 1, 4, 2, 5)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(len(x), x.shape[1], -1, -1, -1))
        return self.out(y.transpose(2, 3).flatten(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.roll(self.norm1(x), (-self.shift, -self.shift), dims=(1, 2))
        y = self.attention(windows(y))
        y = y.view(len(x), GRID // WINDOW, GRID // WINDOW, WINDOW, WINDOW, WIDTH).transpose(2, 3).reshape(x.shape)
        x = x + torch.roll(y, (self.shift, self.shift), dims=(1, 2))
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self, buffered: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.blocks = nn.Sequential(*(Block(WINDOW // 2 * (i % 2), buffered) for i in range(BLOCKS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).permute(0, 2, 3, 1)
        return self.head(self.blocks(x).mean(dim=(1, 2)))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    images = TensorDataset(torch.randn(512, 3, SIZE, SIZE), torch.randint(CLASSES, (512,)))
    loader = DataLoader(images, batch_size=BATCH, shuffle=True)
    model = Swin(buffered=fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    while True:
        for pictures, labels in loader:
            loss = F.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=90)
