"""Train an MLP-Mixer on 32x32 images. Its GELU and its layer norm are formulas of elementwise operations. Fix: F.gelu
and F.layer_norm."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

IMAGE, PATCH, CLASSES = 32, 4, 10
TOKENS, WIDTH, LAYERS, BATCH = (IMAGE // PATCH) ** 2, 128, 4, 32


class GELU(nn.Module):
    def __init__(self, builtin: bool) -> None:
        super().__init__()
        self.builtin = builtin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.builtin:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class LayerNorm(nn.Module):
    def __init__(self, builtin: bool) -> None:
        super().__init__()
        self.builtin = builtin
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.builtin:
            return F.layer_norm(x, (WIDTH,), self.weight, self.bias, eps=1e-6)
        mean = x.mean(dim=-1, keepdim=True)
        variance = (x - mean).pow(2).mean(dim=-1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt(variance + 1e-6) + self.bias


class MixerBlock(nn.Module):
    def __init__(self, builtin: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = LayerNorm(builtin), LayerNorm(builtin)
        self.tokens = nn.Sequential(nn.Linear(TOKENS, 2 * TOKENS), GELU(builtin), nn.Linear(2 * TOKENS, TOKENS))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), GELU(builtin), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, builtin: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH)
        self.blocks = nn.Sequential(*(MixerBlock(builtin) for _ in range(LAYERS)))
        self.norm = LayerNorm(builtin)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(1600, 3, IMAGE, IMAGE), torch.randint(CLASSES, (1600,)))
    loader = DataLoader(dataset, BATCH, shuffle=True)
    model = Mixer(builtin=fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=50)
