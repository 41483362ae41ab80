"""Train a neural n-gram language model on words: it predicts a word from the five before it. The softmax and its cross
entropy are written by hand, from elementwise operators. Fix: ``F.cross_entropy``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, TensorDataset
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WORDS, CONTEXT, EMBEDDING, HIDDEN, BATCH = 4000, 5, 60, 100, 256


class NgramModel(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, EMBEDDING)
        self.hidden = nn.Linear(CONTEXT * EMBEDDING, HIDDEN)
        self.output = nn.Linear(HIDDEN, WORDS)

    def forward(self, contexts: paddle.Tensor) -> paddle.Tensor:
        return self.output(paddle.tanh(self.hidden(self.embedding(contexts).flatten(1))))


def softmax_cross_entropy(logits: paddle.Tensor, words: paddle.Tensor) -> paddle.Tensor:
    shifted = logits - logits.max(axis=1, keepdim=True).detach()
    exponentials = paddle.exp(shifted)
    probabilities = exponentials / exponentials.sum(axis=1, keepdim=True)
    targets = F.one_hot(words, WORDS)
    return -(targets * paddle.log(probabilities + 1e-12)).sum(axis=1).mean()


def ngrams(count: int) -> TensorDataset:
    """All windows of six words of a text whose words are as frequent as Zipf's law says."""
    rng = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, WORDS + 1)
    text = rng.choice(WORDS, count + CONTEXT, p=frequencies / frequencies.sum())
    windows = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)
    return TensorDataset([paddle.to_tensor(windows[:, :-1].copy()), paddle.to_tensor(windows[:, -1].copy())])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(ngrams(30_000), batch_size=BATCH, shuffle=True, drop_last=True)
    model = NgramModel()
    optimizer = paddle.optimizer.Adagrad(0.02, parameters=model.parameters())
    criterion = F.cross_entropy if fixed else softmax_cross_entropy
    while True:
        for contexts, words in loader:
            loss = criterion(model(contexts), words)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=70)
