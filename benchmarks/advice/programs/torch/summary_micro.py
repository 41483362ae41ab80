"""Train a summarizer with a recurrent encoder, and a decoder that attends to the document. A step accumulates the
gradients of eight batches of two documents. Fix: one batch of 16 documents."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

DOCUMENTS, WORDS, DOCUMENT, SUMMARY, WIDTH = 512, 1200, 40, 10, 64
STEP_DOCUMENTS = 16
BEGIN = 0


class News(Dataset):
    """Documents of random words. The summary is made of the words that stand at every fourth place."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.documents = torch.randint(1, WORDS, (DOCUMENTS, DOCUMENT), generator=generator)

    def __len__(self) -> int:
        return DOCUMENTS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        document = self.documents[index]
        return document, document[:: DOCUMENT // SUMMARY]


class Summarizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(WIDTH, WIDTH)
        self.decoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.mix = nn.Linear(2 * WIDTH, WIDTH)
        self.words = nn.Linear(WIDTH, WORDS)

    def forward(self, documents: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
        encoded, last = self.encoder(self.embedding(documents))
        start = torch.tanh(self.bridge(last.transpose(0, 1).flatten(1)))
        decoded, _ = self.decoder(self.embedding(previous), start[None])
        attention = torch.softmax(decoded @ encoded.transpose(1, 2) / WIDTH**0.5, dim=-1)
        mixed = torch.tanh(self.mix(torch.cat([decoded, attention @ encoded], dim=-1)))
        return self.words(mixed)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    batch = STEP_DOCUMENTS if fixed else 2
    accumulation = STEP_DOCUMENTS // batch
    loader = DataLoader(News(), batch_size=batch, shuffle=True, drop_last=True)
    model = Summarizer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses, total = [], torch.zeros(())
    while True:
        for number, (documents, summaries) in enumerate(loader, start=1):
            previous = F.pad(summaries[:, :-1], (1, 0), value=BEGIN)
            scores = model(documents, previous)
            loss = F.cross_entropy(scores.flatten(0, 1), summaries.flatten()) / accumulation
            loss.backward()
            total += loss.detach()
            if number % accumulation == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(total)
                total = torch.zeros(())
                yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
