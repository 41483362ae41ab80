"""Train a language model of song lyrics with two layers of LSTM, which keeps its state from one piece of text to the
next. The gradients are filled with zeros in each step. Fix: set them to None."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WORDS, EMBEDDING, HIDDEN, LAYERS, LENGTH, BATCH = 3000, 128, 192, 2, 24, 16


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, LAYERS, batch_first=True)
        self.words = nn.Linear(HIDDEN, WORDS)

    def forward(
        self, words: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        outputs, state = self.lstm(self.embedding(words), state)
        return self.words(outputs), state


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    lyrics = torch.randint(WORDS, (BATCH, 100 * LENGTH + 1))
    model = LanguageModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    while True:
        hidden, cell = torch.zeros(LAYERS, BATCH, HIDDEN), torch.zeros(LAYERS, BATCH, HIDDEN)
        for start in range(0, lyrics.shape[1] - 1, LENGTH):
            words = lyrics[:, start : start + LENGTH]
            following = lyrics[:, start + 1 : start + LENGTH + 1]
            logits, (hidden, cell) = model(words, (hidden.detach(), cell.detach()))
            loss = F.cross_entropy(logits.flatten(0, 1), following.flatten())
            optimizer.zero_grad(set_to_none=fixed)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
