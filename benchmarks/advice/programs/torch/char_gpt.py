"""Train a character-level GPT. Attention is written by hand. Fix: fused attention."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CHARACTERS, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 65, 256, 128, 4, 2, 8


class Attention(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT)).bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2) for part in self.qkv(x).split(WIDTH, dim=2)
        )
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // HEADS)
            scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(fused)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block(fused) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.blocks(x))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    text = torch.randint(CHARACTERS, (100_000,))
    model = GPT(fused=fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    while True:
        starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,)).tolist()
        inputs = torch.stack([text[i : i + CONTEXT] for i in starts])
        targets = torch.stack([text[i + 1 : i + CONTEXT + 1] for i in starts])
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=50)
