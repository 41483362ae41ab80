"""Train a text classifier, short texts first. Batches are padded to their longest text, and the model is compiled for
fixed shapes, so it is compiled anew for each length. Fix: run it uncompiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WORDS, WIDTH, HIDDEN, CLASSES, BATCH = 8000, 128, 256, 5, 64
SHORTEST, LONGEST = 24, 64

Text = tuple[torch.Tensor, int]


class Classifier(nn.Module):
    """Averages the embeddings of the words of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.layers = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        lengths = (words != 0).sum(dim=1, keepdim=True)
        return self.layers(self.words(words).sum(dim=1) / lengths)


def make_texts(count: int) -> list[Text]:
    """Texts of random words, in the order of their lengths."""
    lengths = torch.randint(SHORTEST, LONGEST + 1, (count,)).sort().values.tolist()
    return [(torch.randint(1, WORDS, (length,)), length % CLASSES) for length in lengths]


def pad(texts: list[Text]) -> tuple[torch.Tensor, torch.Tensor]:
    words, labels = zip(*texts, strict=True)
    return pad_sequence(words, batch_first=True), torch.tensor(labels)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(make_texts(6000), batch_size=BATCH, collate_fn=pad)
    model = Classifier()
    forward = model if fixed else torch.compile(model, dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for words, labels in loader:
            loss = F.cross_entropy(forward(words), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=40)
