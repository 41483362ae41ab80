"""Train a BiLSTM-CRF to tag named entities. The forward algorithm of the CRF loops over the time and, in Python, over
the tags. Fix: one logsumexp for all tags of a time step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WORDS, TAGS, WIDTH, HIDDEN, BATCH, LONGEST = 5000, 9, 64, 128, 16, 24


class Crf(nn.Module):
    def __init__(self, all_tags: bool) -> None:
        super().__init__()
        self.all_tags = all_tags
        self.start = nn.Parameter(torch.randn(TAGS) * 0.1)
        self.transitions = nn.Parameter(torch.randn(TAGS, TAGS) * 0.1)

    def forward(self, emissions: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (self.partition(emissions, mask) - self.score(emissions, tags, mask)).mean()

    def partition(self, emissions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            if self.all_tags:
                scores = alpha[:, :, None] + self.transitions
                following = torch.logsumexp(scores, dim=1) + emissions[:, t]
            else:
                columns = []
                for tag in range(TAGS):
                    scores = alpha + self.transitions[:, tag]
                    columns.append(torch.logsumexp(scores, dim=1) + emissions[:, t, tag])
                following = torch.stack(columns, dim=1)
            alpha = torch.where(mask[:, t, None], following, alpha)
        return torch.logsumexp(alpha, dim=1)

    def score(self, emissions: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        emitted = emissions.gather(2, tags[:, :, None]).squeeze(2) * mask
        moved = self.transitions[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        return self.start[tags[:, 0]] + emitted.sum(dim=1) + moved.sum(dim=1)


class Tagger(nn.Module):
    def __init__(self, all_tags: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.lstm = nn.LSTM(WIDTH, HIDDEN // 2, bidirectional=True, batch_first=True)
        self.emit = nn.Linear(HIDDEN, TAGS)
        self.crf = Crf(all_tags)

    def forward(self, words: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.words(words))
        return self.crf(self.emit(hidden), tags, words != 0)


Sentence = tuple[torch.Tensor, torch.Tensor]


def make_sentences(count: int) -> list[Sentence]:
    lengths = torch.randint(8, LONGEST + 1, (count,)).tolist()
    return [(torch.randint(1, WORDS, (length,)), torch.randint(TAGS, (length,))) for length in lengths]


def pad(sentences: list[Sentence]) -> Sentence:
    words, tags = zip(*sentences, strict=True)
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    loader = DataLoader(make_sentences(1000), batch_size=BATCH, shuffle=True, collate_fn=pad)
    model = Tagger(all_tags=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for words, tags in loader:
            loss = model(words, tags)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
