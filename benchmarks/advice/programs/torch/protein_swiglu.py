"""Train a network that predicts the secondary structure of proteins from embeddings of their residues. It has the
feed-forward blocks of large language models, and its RMS norm and its swish are formulas of elementwise operations.
Fix: F.rms_norm and F.silu."""

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

EMBEDDING, WIDTH, HIDDEN, BLOCKS, STRUCTURES, LENGTH, BATCH = 320, 128, 344, 3, 8, 128, 8


class RMSNorm(nn.Module):
    def __init__(self, fused: bool, eps: float = 1e-6) -> None:
        super().__init__()
        self.fused, self.eps = fused, eps
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return F.rms_norm(x, (WIDTH,), self.weight, self.eps)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class SwiGLU(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x)
        swish = F.silu(gate) if self.fused else gate * (1 / (1 + torch.exp(-gate)))
        return self.down(swish * self.up(x))


class Block(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(fused), RMSNorm(fused)
        self.neighbours = nn.Conv1d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH)
        self.feedforward = SwiGLU(fused)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.neighbours(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.feedforward(self.norm2(x))


class SecondaryStructure(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.project = nn.Linear(EMBEDDING, WIDTH)
        self.blocks = nn.Sequential(*(Block(fused) for _ in range(BLOCKS)))
        self.norm = RMSNorm(fused)
        self.head = nn.Linear(WIDTH, STRUCTURES)

    def forward(self, residues: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.project(residues))))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    proteins = TensorDataset(torch.randn(256, LENGTH, EMBEDDING), torch.randint(STRUCTURES, (256, LENGTH)))
    loader = DataLoader(proteins, batch_size=BATCH, shuffle=True)
    model = SecondaryStructure(fused=fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    while True:
        for residues, structures in loader:
            loss = F.cross_entropy(model(residues).flatten(0, 1), structures.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
