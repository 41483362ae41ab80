"""Train a text classifier, a small transformer encoder. A step accumulates the gradients of 16 micro-batches of one
text. Fix: one batch of 16 texts."""

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

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, CLASSES = 5000, 64, 128, 4, 2, 4
TEXTS_PER_STEP = 16


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.words(texts) + self.positions).mean(dim=1))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randint(VOCABULARY, (1600, LENGTH)), torch.randint(CLASSES, (1600,)))
    batch = TEXTS_PER_STEP if fixed else 1
    accumulation = TEXTS_PER_STEP // batch
    loader = DataLoader(dataset, batch, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    while True:
        for i, (texts, labels) in enumerate(loader, start=1):
            loss = F.cross_entropy(model(texts), labels) / accumulation
            loss.backward()
            if i % accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
                yield


if __name__ == "__main__":
    run(training, "torch", steps=50)
