"""Train a small GPT that writes verses, letter by letter. Its GELU is written out with elementwise operators, as in the
code of GPT-2. Fix: F.gelu with approximate=True, which computes the same formula."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

LETTERS = "abcdefghijklmnopqrstuvwxyz ,\n"
CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 64, 96, 4, 2, 8


def verses(rng: np.random.Generator) -> np.ndarray:
    """Verses of five words each, of a vocabulary in which some words are more common."""
    words = ["".join(rng.choice(list(LETTERS[:26]), rng.integers(2, 8))) for _ in range(300)]
    shares = 1 / np.arange(1, 301)
    lines = rng.choice(words, (3000, 5), p=shares / shares.sum())
    text = ",\n".join(" ".join(line) for line in lines)
    return np.array([LETTERS.index(letter) for letter in text])


def batches(rng: np.random.Generator) -> Iterator[tuple[paddle.Tensor, paddle.Tensor]]:
    text = verses(rng)
    while True:
        starts = rng.integers(0, len(text) - CONTEXT - 1, BATCH)
        chunks = text[starts[:, None] + np.arange(CONTEXT + 1)]
        yield paddle.to_tensor(chunks[:, :-1]), paddle.to_tensor(chunks[:, 1:])


def written_gelu(x: paddle.Tensor) -> paddle.Tensor:
    return 0.5 * x * (1.0 + paddle.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * paddle.pow(x, 3))))


def library_gelu(x: paddle.Tensor) -> paddle.Tensor:
    return F.gelu(x, approximate=True)


class Block(nn.Layer):
    """Causal attention, and two layers with an activation between them."""

    def __init__(self, gelu: Callable[[paddle.Tensor], paddle.Tensor]) -> None:
        super().__init__()
        self.gelu = gelu
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.mixed = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("future", paddle.triu(paddle.full([CONTEXT, CONTEXT], -1e9), 1))

    def attention(self, x: paddle.Tensor) -> paddle.Tensor:
        joint = self.queries_keys_values(x).reshape([BATCH, CONTEXT, 3, HEADS, -1])
        queries, keys, values = joint.transpose([2, 0, 3, 1, 4]).unbind(0)
        scores = paddle.matmul(queries, keys, transpose_y=True) * (WIDTH // HEADS) ** -0.5
        mixed = paddle.matmul(F.softmax(scores + self.future, axis=-1), values)
        return self.mixed(mixed.transpose([0, 2, 1, 3]).reshape([BATCH, CONTEXT, WIDTH]))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(self.gelu(self.wide(self.norm2(x))))


class Poet(nn.Layer):
    def __init__(self, gelu: Callable[[paddle.Tensor], paddle.Tensor]) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = self.create_parameter([CONTEXT, WIDTH])
        self.blocks = nn.Sequential(*[Block(gelu) for _ in range(BLOCKS)])
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS)))

    def forward(self, text: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.blocks(self.letters(text) + self.places))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    model = Poet(library_gelu if fixed else written_gelu)
    clip = nn.ClipGradByGlobalNorm(1.0)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=0.01, grad_clip=clip)
    for step, (text, following) in enumerate(batches(np.random.default_rng(0))):
        loss = F.cross_entropy(model(text), following)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 40 == 0:
            print(f"step {step}: perplexity {math.exp(float(loss)):.2f}", file=sys.stderr)
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=110)
