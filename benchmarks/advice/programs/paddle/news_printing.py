"""Train a convolutional network that sorts news by their topic (TextCNN). It reads and prints the loss in every step.
Fix, as often advised: every 50 steps."""

from __future__ import annotations

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

WORDS, LENGTH, EMBEDDING, FILTERS, TOPICS, BATCH = 8000, 60, 100, 64, 4, 32


class News(Dataset):
    """Articles of different lengths, padded with the word 0. Every topic has some words of its own."""

    def __init__(self, count: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.topics = rng.integers(0, TOPICS, count)
        words = rng.zipf(1.3, (count, LENGTH)) % (WORDS // TOPICS - 1) + 1
        words += self.topics[:, None] * (WORDS // TOPICS) * (rng.random(words.shape) < 0.2)
        lengths = rng.integers(LENGTH // 3, LENGTH + 1, (count, 1))
        self.articles = np.where(np.arange(LENGTH) < lengths, words, 0)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        return self.articles[index], self.topics[index]

    def __len__(self) -> int:
        return len(self.topics)


class TextCNN(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, EMBEDDING, padding_idx=0)
        self.convs = nn.LayerList([nn.Conv1D(EMBEDDING, FILTERS, size) for size in (3, 4, 5)])
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(3 * FILTERS, TOPICS)

    def forward(self, articles: paddle.Tensor) -> paddle.Tensor:
        x = self.embedding(articles).transpose([0, 2, 1])
        maps = [F.relu(conv(x)) for conv in self.convs]
        pooled = [F.max_pool1d(each, each.shape[2]).squeeze(2) for each in maps]
        return self.head(self.dropout(paddle.concat(pooled, axis=1)))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(News(12_000), batch_size=BATCH, shuffle=True, drop_last=True)
    model = TextCNN()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    print_every = 50 if fixed else 1
    step = 0
    while True:
        for articles, topics in loader:
            loss = F.cross_entropy(model(articles), topics)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            step += 1
            if step % print_every == 0:
                print(f"step {step}: loss {float(loss):.4f}")
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=70)
