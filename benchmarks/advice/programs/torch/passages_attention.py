"""Train a transformer that reads a query together with a passage, and ranks the passages that answer the query above
others. Its attention over 320 padded positions is written by hand: product, mask, softmax, product. Fix: call
scaled_dot_product_attention with the same mask."""

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

WORDS, LENGTH, QUERY, WIDTH, HEADS, LAYERS, QUERIES = 3000, 320, 12, 64, 4, 2, 4
PAD = 0


class Attention(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.inputs(x).view(batch, length, 3, HEADS, WIDTH // HEADS)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        if self.fixed:
            mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        else:
            scores = queries @ keys.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
            scores = scores.masked_fill(~mask, float("-inf"))
            mixed = torch.softmax(scores, dim=-1) @ values
        return self.output(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.attention = Attention(fixed)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.feedforward = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.feedforward(self.norm2(x))


class CrossEncoder(nn.Module):
    """Reads query and passage as one text, and gives one score."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(fixed) for _ in range(LAYERS))
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        mask = (texts != PAD)[:, None, None, :]
        x = self.words(texts) + self.places.weight
        for block in self.blocks:
            x = block(x, mask)
        return self.score(x[:, 0]).squeeze(-1)


def passages(queries: torch.Tensor, relevant: bool) -> torch.Tensor:
    """Texts of a query and a passage, padded. A relevant passage contains the words of the query."""
    found = torch.randint(1, WORDS, (len(queries), LENGTH - QUERY))
    if relevant:
        found[:, 20 : 20 + QUERY] = queries
    lengths = torch.randint(LENGTH // 2, LENGTH - QUERY, (len(queries), 1))
    found[torch.arange(LENGTH - QUERY) >= lengths] = PAD
    return torch.cat([queries, found], dim=1)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    model = CrossEncoder(fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    correct, seen = torch.zeros(()), 0
    while True:
        queries = torch.randint(1, WORDS, (QUERIES, QUERY))
        texts = torch.cat([passages(queries, relevant=True), passages(queries, relevant=False)])
        better, worse = model(texts).chunk(2)
        loss = F.softplus(worse - better).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (better > worse).sum()
        seen += QUERIES
        yield


if __name__ == "__main__":
    run(training, "torch", steps=90)
