"""Train word vectors with skip-gram and negative sampling. A loop handles the negative words one after the other.
Fix: all negative words at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

VOCABULARY, WIDTH, WINDOW, NEGATIVES, BATCH = 5000, 100, 5, 10, 512


class SkipGram(nn.Layer):
    def __init__(self, batched: bool) -> None:
        super().__init__()
        self.batched = batched
        self.words, self.contexts = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(VOCABULARY, WIDTH)

    def forward(self, words: paddle.Tensor, contexts: paddle.Tensor, negatives: paddle.Tensor) -> paddle.Tensor:
        centers = self.words(words)
        likelihood = F.log_sigmoid((centers * self.contexts(contexts)).sum(axis=1))
        if self.batched:
            scores = paddle.bmm(self.contexts(negatives), centers.unsqueeze(2)).squeeze(2)
            likelihood += F.log_sigmoid(-scores).sum(axis=1)
        else:
            for i in range(NEGATIVES):
                scores = (centers * self.contexts(negatives[:, i])).sum(axis=1)
                likelihood += F.log_sigmoid(-scores)
        return -likelihood.mean()


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, VOCABULARY + 1)
    text = rng.choice(VOCABULARY, 200_000, p=frequencies / frequencies.sum())
    noise = np.cumsum(frequencies**0.75)
    noise /= noise[-1]
    offsets = np.array([offset for offset in range(-WINDOW, WINDOW + 1) if offset != 0])
    model = SkipGram(batched=fixed)
    optimizer = paddle.optimizer.Adam(learning_rate=2e-3, parameters=model.parameters())
    while True:
        positions = rng.integers(WINDOW, len(text) - WINDOW, BATCH)
        words = paddle.to_tensor(text[positions])
        contexts = paddle.to_tensor(text[positions + rng.choice(offsets, BATCH)])
        negatives = paddle.to_tensor(np.searchsorted(noise, rng.random((BATCH, NEGATIVES))))
        loss = model(words, contexts, negatives)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=120)
