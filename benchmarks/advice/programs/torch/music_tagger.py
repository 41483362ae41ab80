"""Train a tagger of music, a transformer over the frames of a mel spectrogram with attention pooling. Clips shorter
than the longest one are padded and masked. Attention is written by hand, with einsum. Fix: fused attention."""

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

BANDS, FRAMES, TAGS, WIDTH, HEADS, LAYERS, BATCH = 64, 512, 50, 128, 4, 2, 8


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, real: torch.Tensor, fused: bool
) -> torch.Tensor:
    """Let the queries attend to the real frames; all have the shape (batch, heads, length, width of a head)."""
    if fused:
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=real[:, None, None, :])
    energy = torch.einsum("bhqd,bhkd->bhqk", queries, keys) * queries.shape[-1] ** -0.5
    energy = energy.masked_fill(~real[:, None, None, :], -1e9)
    return torch.einsum("bhqk,bhkd->bhqd", energy.softmax(dim=-1), values)


def split_heads(x: torch.Tensor) -> torch.Tensor:
    return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(-3, -2)


class Layer(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feedforward = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH))

    def forward(self, x: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = split_heads(self.query(y)), split_heads(self.key(y)), split_heads(self.value(y))
        x = x + self.out(attend(q, k, v, real, self.fused).transpose(1, 2).flatten(2))
        return x + self.feedforward(self.norm2(x))


class Tagger(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.stem = nn.Conv1d(BANDS, WIDTH, 5, stride=2, padding=2)
        self.positions = nn.Parameter(torch.randn(FRAMES // 2, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer(fused) for _ in range(LAYERS))
        self.pool_query = nn.Parameter(torch.randn(1, HEADS, 1, WIDTH // HEADS))
        self.pool_keys, self.pool_values = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, spectrogram: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.stem(spectrogram)).transpose(1, 2) + self.positions
        real = torch.arange(x.shape[1]) < (lengths[:, None] + 1) // 2
        for layer in self.layers:
            x = layer(x, real)
        query = self.pool_query.expand(len(x), -1, -1, -1)
        pooled = attend(query, split_heads(self.pool_keys(x)), split_heads(self.pool_values(x)), real, self.fused)
        return self.head(pooled.flatten(1))


def clips(count: int) -> TensorDataset:
    lengths = torch.randint(FRAMES // 2, FRAMES + 1, (count,))
    spectrograms = torch.randn(count, BANDS, FRAMES) * (torch.arange(FRAMES) < lengths[:, None])[:, None]
    tags = (torch.rand(count, TAGS) < 0.05).float()
    return TensorDataset(spectrograms, lengths, tags)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(clips(256), batch_size=BATCH, shuffle=True)
    model = Tagger(fused=fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    while True:
        for spectrograms, lengths, tags in loader:
            loss = F.binary_cross_entropy_with_logits(model(spectrograms, lengths), tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
