"""Train a transformer that marks the answer to a question in a text. Each layer attends to near words only, and builds
its table of distances and its mask anew in every forward pass. Fix: a table that the layers keep in a buffer."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

TEXTS, LENGTH, QUESTION, WORDS, BATCH = 512, 256, 12, 2000, 2
WIDTH, HEADS, LAYERS = 64, 8, 3


class Questions(Dataset):
    """Texts that begin with a question. The answer stands behind the word that the question ends with."""

    def __init__(self) -> None:
        self.words = torch.randint(10, WORDS, (TEXTS, LENGTH))
        self.starts = torch.randint(QUESTION + 4, LENGTH - 8, (TEXTS,))
        self.lengths = torch.randint(1, 6, (TEXTS,))
        for words, start in zip(self.words, self.starts.tolist(), strict=True):
            words[QUESTION] = 1
            words[start - 1] = words[QUESTION - 1]

    def __len__(self) -> int:
        return TEXTS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.words[index], self.starts[index], self.starts[index] + self.lengths[index]


def distance_table(length: int) -> torch.Tensor:
    """What each head adds to its scores: less for words farther away, and minus infinity outside its window. All words
    see the question, and the question sees all words."""
    positions = torch.arange(length)
    distances = (positions[None, :] - positions[:, None]).abs()
    heads = torch.arange(1, HEADS + 1).view(HEADS, 1, 1)
    table = -(0.5**heads) * distances
    question = positions < QUESTION
    hidden = (distances > 16 * heads) & ~question[None, :] & ~question[:, None]
    return table.masked_fill(hidden, float("-inf")).unsqueeze(0)


class Attention(nn.Module):
    def __init__(self, buffered: bool) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("table", distance_table(LENGTH) if buffered else None, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        table = distance_table(length) if self.table is None else self.table
        queries, keys, values = self.project(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=table)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, buffered: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(buffered)
        self.forward_part = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.forward_part(self.norm2(x))


class Reader(nn.Module):
    def __init__(self, buffered: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(*[Layer(buffered) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.ends = nn.Linear(WIDTH, 2)

    def forward(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        starts, stops = self.ends(self.norm(self.layers(self.words(words)))).unbind(-1)
        return starts, stops


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(Questions(), batch_size=BATCH, shuffle=True)
    model = Reader(buffered=fixed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    exact: deque[int] = deque(maxlen=100)
    while True:
        for words, starts, stops in loader:
            start_scores, stop_scores = model(words)
            loss = F.cross_entropy(start_scores, starts) + F.cross_entropy(stop_scores, stops)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            exact.append(((start_scores.argmax(1) == starts) & (stop_scores.argmax(1) == stops)).sum().item())
            yield


if __name__ == "__main__":
    run(training, "torch", steps=300)
