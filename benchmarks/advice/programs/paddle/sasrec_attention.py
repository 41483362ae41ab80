"""Train a recommender that reads the items a customer bought and predicts the next ones (SASRec). Its causal attention
is written by hand. Fix: fused attention."""

from __future__ import annotations

import math
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

ITEMS, LENGTH, WIDTH, HEADS, LAYERS, BATCH, DROPOUT = 3400, 100, 64, 2, 2, 32, 0.2


class Purchases(Dataset):
    """Purchases of each customer, padded in front with zeros, with the next item and an item that was not bought."""

    def __init__(self, customers: int) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)
        tastes = self.rng.integers(1, ITEMS - 200, (customers, 1))
        self.items = tastes + self.rng.integers(0, 200, (customers, LENGTH + 1))
        counts = self.rng.integers(LENGTH // 4, LENGTH + 2, (customers, 1))
        self.items[np.arange(LENGTH + 1) < LENGTH + 1 - counts] = 0

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        items = self.items[index]
        return items[:-1], items[1:], self.rng.integers(1, ITEMS, LENGTH)

    def __len__(self) -> int:
        return len(self.items)


class CausalAttention(nn.Layer):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.register_buffer("future", paddle.triu(paddle.full([LENGTH, LENGTH], float("-inf")), diagonal=1))

    def forward(self, queries: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
        shape = [0, 0, HEADS, WIDTH // HEADS]
        q, k, v = self.query(queries).reshape(shape), self.key(x).reshape(shape), self.value(x).reshape(shape)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            q, k, v = (part.transpose([0, 2, 1, 3]) for part in (q, k, v))
            scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS)
            y = paddle.matmul(F.softmax(scores + self.future, axis=-1), v).transpose([0, 2, 1, 3])
        return y.flatten(2)


class Block(nn.Layer):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.attention = CausalAttention(fused)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.Dropout(DROPOUT), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.Dropout(DROPOUT)
        )

    def forward(self, x: paddle.Tensor, bought: paddle.Tensor) -> paddle.Tensor:
        queries = self.norm1(x)
        x = self.norm2(queries + self.attention(queries, x))
        return (x + self.feed(x)) * bought


class SASRec(nn.Layer):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.items, self.positions = nn.Embedding(ITEMS, WIDTH, padding_idx=0), nn.Embedding(LENGTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.LayerList([Block(fused) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, history: paddle.Tensor) -> paddle.Tensor:
        bought = (history != 0).astype("float32").unsqueeze(-1)
        x = self.items(history) * math.sqrt(WIDTH) + self.positions(paddle.arange(LENGTH))
        x = self.dropout(x) * bought
        for block in self.blocks:
            x = block(x, bought)
        return self.norm(x)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Purchases(2000), batch_size=BATCH, shuffle=True, drop_last=True)
    model = SASRec(fused=fixed)
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, beta2=0.98, parameters=model.parameters())
    while True:
        for history, following, others in loader:
            states = model(history)
            scores = paddle.stack([(states * model.items(items)).sum(axis=-1) for items in (following, others)])
            labels = paddle.stack([paddle.ones(following.shape), paddle.zeros(following.shape)])
            counted = (following != 0).astype("float32")
            losses = F.binary_cross_entropy_with_logits(scores, labels, reduction="none").sum(axis=0)
            loss = (losses * counted).sum() / counted.sum()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=60)
