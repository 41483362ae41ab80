"""Train a transformer encoder that classifies the sentiment of texts. Attention is written by hand.
Fix: fused attention."""

from __future__ import annotations

import math
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

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 5000, 128, 64, 4, 2, 8


class SelfAttention(nn.Layer):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        q, k, v = (linear(x).reshape([0, 0, HEADS, WIDTH // HEADS]) for linear in (self.query, self.key, self.value))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            q, k, v = (part.transpose([0, 2, 1, 3]) for part in (q, k, v))
            scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS) + bias
            y = paddle.matmul(F.softmax(scores, axis=-1), v).transpose([0, 2, 1, 3])
        return self.out(y.flatten(2))


class Block(nn.Layer):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.attention = SelfAttention(fused)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        x = self.norm1(x + self.attention(x, bias))
        return self.norm2(x + self.mlp(x))


class Classifier(nn.Layer):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.LayerList([Block(fused) for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        bias = (tokens == 0).astype("float32").unsqueeze([1, 2]) * -1e4
        x = self.words(tokens) + self.positions(paddle.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, bias)
        return self.head(x[:, 0])


def reviews(count: int) -> TensorDataset:
    """Word numbers, padded with zeros, and a label for each text."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, VOCABULARY, (count, LENGTH))
    tokens[np.arange(LENGTH) >= rng.integers(LENGTH // 2, LENGTH + 1, (count, 1))] = 0
    return TensorDataset([paddle.to_tensor(tokens), paddle.to_tensor(rng.integers(0, 2, count))])


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(reviews(800), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Classifier(fused=fixed)
    optimizer = paddle.optimizer.AdamW(learning_rate=3e-4, parameters=model.parameters())
    while True:
        for tokens, labels in loader:
            loss = F.cross_entropy(model(tokens), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
