"""Measure the perplexity of a gated convolutional language model: every step is one batch of the test set. The forward
pass records what a backward pass would need. Fix: inference mode."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WORDS, WIDTH, KERNEL, LAYERS, LENGTH, BATCH = 4000, 128, 4, 6, 128, 8


class GatedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.conv = nn.Conv1d(WIDTH, 2 * WIDTH, KERNEL)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        past = F.pad(self.norm(x).transpose(1, 2), (KERNEL - 1, 0))
        return x + self.dropout(F.glu(self.conv(past), dim=1).transpose(1, 2))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(*(GatedConvolution() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(words)))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    text = torch.randint(WORDS, (600, LENGTH + 1))
    loader = DataLoader(TensorDataset(text), batch_size=BATCH)
    model = LanguageModel().eval()
    while True:
        surprise, count = 0.0, 0
        for (lines,) in loader:
            with torch.inference_mode() if fixed else nullcontext():
                logits = model(lines[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), lines[:, 1:].flatten(), reduction="sum")
            surprise += loss.item()
            count += lines[:, 1:].numel()
            yield
        print(f"perplexity {torch.tensor(surprise / count).exp():.1f}", file=sys.stderr)


if __name__ == "__main__":
    run(training, "torch", steps=80)
