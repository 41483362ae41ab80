"""Train a masked language model like BERT in bfloat16. ``paddle.amp.auto_cast`` has no effect on a CPU, and Paddle has
no CPU kernels that calculate in bfloat16, so the linear layers round their inputs and weights to bfloat16 and back in
every step. Fix: float32."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, BATCH = 1000, 64, 128, 4, 2, 8
MASK, IGNORED = 1, -100


class BFloat16Linear(nn.Linear):
    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return F.linear(_rounded(x), _rounded(self.weight), self.bias)


def _rounded(x: paddle.Tensor) -> paddle.Tensor:
    return x.astype("bfloat16").astype("float32")


class Block(nn.Layer):
    def __init__(self, linear: type[nn.Linear]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.out = linear(WIDTH, WIDTH)
        self.up, self.down = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        q, k, v = (
            layer(x).reshape([0, LENGTH, HEADS, WIDTH // HEADS]).transpose([0, 2, 1, 3])
            for layer in (self.query, self.key, self.value)
        )
        weights = F.softmax(paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS))
        attended = paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([0, LENGTH, WIDTH])
        x = self.norm1(x + self.out(attended))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Layer):
    def __init__(self, linear: type[nn.Linear]) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.Sequential(*(Block(linear) for _ in range(LAYERS)))
        self.head = linear(WIDTH, VOCABULARY)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        x = self.norm(self.tokens(tokens) + self.positions(paddle.arange(LENGTH)))
        return self.head(self.blocks(x))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    sentences = paddle.randint(2, VOCABULARY, [2000, LENGTH])
    model = Bert(nn.Linear if fixed else BFloat16Linear)
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters(), weight_decay=0.01)
    while True:
        tokens = sentences[paddle.randint(0, len(sentences), [BATCH])]
        masked = paddle.rand([BATCH, LENGTH]) < 0.15
        inputs = paddle.where(masked, paddle.full_like(tokens, MASK), tokens)
        targets = paddle.where(masked, tokens, paddle.full_like(tokens, IGNORED))
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
