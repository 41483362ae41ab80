"""Train a transformer that tags the names of people, places and organisations in sentences. Its attention is written by
hand with products and a softmax. Fix: paddle.nn.functional.scaled_dot_product_attention."""

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

WORDS, TAGS, LONGEST, WIDTH, HEADS, LAYERS, BATCH = 3000, 9, 48, 96, 4, 2, 12
PADDING, OUTSIDE, IGNORED = 0, 0, -100


class Sentences(Dataset):
    """Sentences of random words. Words beyond the first 2000 belong to names, and their number determines the tag."""

    def __init__(self, count: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.words = rng.integers(1, WORDS, (count, LONGEST))
        self.tags = np.where(self.words < 2000, OUTSIDE, 1 + self.words % (TAGS - 1))
        beyond = np.arange(LONGEST) >= rng.integers(12, LONGEST + 1, (count, 1))
        self.words[beyond] = PADDING
        self.tags[beyond] = IGNORED

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.words[index], self.tags[index]

    def __len__(self) -> int:
        return len(self.words)


class Block(nn.Layer):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed = fixed
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def attend(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).reshape([batch, length, 3, HEADS, WIDTH // HEADS])
        q, k, v = qkv.unbind(axis=2)
        if self.fixed:
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            q, k, v = q.transpose([0, 2, 1, 3]), k.transpose([0, 2, 1, 3]), v.transpose([0, 2, 1, 3])
            scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS)
            weights = F.softmax(scores + mask, axis=-1)
            context = paddle.matmul(weights, v).transpose([0, 2, 1, 3])
        return self.projection(context.reshape([batch, length, WIDTH]))

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        x = x + self.attend(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Tagger(nn.Layer):
    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.LayerList([Block(fixed) for _ in range(LAYERS)])
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TAGS))

    def forward(self, words: paddle.Tensor) -> paddle.Tensor:
        mask = (words == PADDING).astype("float32").unsqueeze([1, 2]) * -1e9
        x = self.words(words) + self.positions(paddle.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Sentences(1600), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Tagger(fixed)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters(), weight_decay=0.01)
    step, accuracies = 0, []
    while True:
        for words, tags in loader:
            scores = model(words)
            loss = F.cross_entropy(scores.reshape([-1, TAGS]), tags.reshape([-1]), ignore_index=IGNORED)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            step += 1
            if step % 20 == 0:
                right = (scores.argmax(axis=-1) == tags).sum() / (tags != IGNORED).sum()
                accuracies.append(right.item())
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=120)
