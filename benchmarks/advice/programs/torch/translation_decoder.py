"""Train a translator of short sentences, an encoder and a decoder with gated recurrent units. The decoder is a GRU cell
in a loop over the words, though teacher forcing gives it all words beforehand. Fix: a GRU layer."""

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

SOURCE_WORDS, TARGET_WORDS, EMBEDDING, HIDDEN, BATCH = 3000, 2000, 96, 192, 32
LONGEST, PADDING, BEGIN = 24, 0, 1


class Translator(nn.Module):
    def __init__(self, layer: bool) -> None:
        super().__init__()
        self.layer = layer
        self.source = nn.Embedding(SOURCE_WORDS, EMBEDDING, padding_idx=PADDING)
        self.encoder = nn.GRU(EMBEDDING, HIDDEN, batch_first=True)
        self.target = nn.Embedding(TARGET_WORDS, EMBEDDING, padding_idx=PADDING)
        if layer:
            self.decoder = nn.GRU(EMBEDDING, HIDDEN, batch_first=True)
        else:
            self.decoder_cell = nn.GRUCell(EMBEDDING, HIDDEN)
        self.project = nn.Linear(HIDDEN, EMBEDDING)
        self.words = nn.Linear(EMBEDDING, TARGET_WORDS)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        _, state = self.encoder(self.source(source))
        embedded = self.target(target)
        if self.layer:
            outputs, _ = self.decoder(embedded, state)
        else:
            hidden = state[0]
            steps = []
            for t in range(embedded.shape[1]):
                hidden = self.decoder_cell(embedded[:, t], hidden)
                steps.append(hidden)
            outputs = torch.stack(steps, dim=1)
        return self.words(self.project(outputs).tanh())


def sentences(count: int, words: int) -> torch.Tensor:
    lengths = torch.randint(8, LONGEST + 1, (count, 1))
    tokens = torch.randint(2, words, (count, LONGEST))
    return tokens.masked_fill(torch.arange(LONGEST) >= lengths, PADDING)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    pairs = TensorDataset(sentences(4000, SOURCE_WORDS), sentences(4000, TARGET_WORDS))
    loader = DataLoader(pairs, batch_size=BATCH, shuffle=True)
    model = Translator(layer=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for source, target in loader:
            shifted = F.pad(target[:, :-1], (1, 0), value=BEGIN)
            logits = model(source, shifted)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PADDING)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
