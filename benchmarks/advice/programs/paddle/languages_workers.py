"""Train a network that identifies the language of short texts. The data set cuts a snippet from a document, adds
spelling mistakes, and counts the hashed n-grams of its characters, in the process that trains. Fix: two workers load
the data."""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

LANGUAGES, ALPHABET, DOCUMENT, SNIPPET, BUCKETS, ORDERS, BATCH = 12, 64, 4000, 600, 4096, (1, 2, 3, 4, 5), 64


class Snippets(Dataset):
    """Documents of letters, where each language has its own frequencies of pairs of letters."""

    def __init__(self, documents: int, snippets: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.snippets = snippets
        self.languages = rng.integers(0, LANGUAGES, documents)
        follows = rng.integers(0, ALPHABET, (LANGUAGES, ALPHABET, 8))
        choices = rng.integers(0, 8, (documents, DOCUMENT))
        self.documents = np.zeros((documents, DOCUMENT), dtype=np.int64)
        for i in range(1, DOCUMENT):
            self.documents[:, i] = follows[self.languages, self.documents[:, i - 1], choices[:, i]]

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        rng = np.random.default_rng(index)
        document = index % len(self.documents)
        start = rng.integers(0, DOCUMENT - SNIPPET)
        letters = self.documents[document, start : start + SNIPPET]
        letters = np.where(rng.random(SNIPPET) < 0.05, rng.integers(0, ALPHABET, SNIPPET), letters)
        letters = letters[rng.random(SNIPPET) > 0.02]
        features = [self._frequencies(letters, order) for order in ORDERS]
        return np.concatenate(features).astype(np.float32), self.languages[document]

    def _frequencies(self, letters: np.ndarray, order: int) -> np.ndarray:
        grams = np.lib.stride_tricks.sliding_window_view(letters, order)
        hashes = (grams * (ALPHABET + 1) ** np.arange(order)).sum(1) * 2654435761 % 2**32 % BUCKETS
        counts = np.log1p(np.bincount(hashes, minlength=BUCKETS))
        return counts / np.linalg.norm(counts)

    def __len__(self) -> int:
        return self.snippets


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(
        Snippets(400, 20_000), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2 if fixed else 0
    )
    model = nn.Sequential(
        nn.Linear(BUCKETS * len(ORDERS), 64),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, LANGUAGES),
    )
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        for features, languages in loader:
            loss = F.cross_entropy(model(features), languages)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=90)
