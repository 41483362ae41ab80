"""A small transformer that predicts the next token. ../torch/transformer.py is the same model.

python transformer.py --annotate --record runs/base
python transformer.py --annotate --record runs/planted --plant activation
perfkit compare runs/base runs/planted
"""

from __future__ import annotations

import numpy as np
import paddle
from paddle import nn
from planted import Batches, activation, copied, layers
from training import main

BATCH, LENGTH, TOKENS = 32, 32, 100
WIDTH, HEADS, HIDDEN = 64, 4, 512
LAYERS = 2


class Attention(nn.Layer):
    """Attention of every token to every token, computed with matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        query, key, value = (heads(layer(x)) for layer in (self.query, self.key, self.value))
        scores = paddle.matmul(query, key.transpose([0, 1, 3, 2])) * (WIDTH // HEADS) ** -0.5
        found = paddle.matmul(nn.functional.softmax(scores, -1), value)
        return self.output(found.transpose([0, 2, 1, 3]).reshape([BATCH, LENGTH, WIDTH]))


def heads(x: paddle.Tensor) -> paddle.Tensor:
    """Return the input with shape (batch, heads, length, head width)."""
    return x.reshape([BATCH, LENGTH, HEADS, WIDTH // HEADS]).transpose([0, 2, 1, 3])


class Block(nn.Layer):
    """Attention, followed by two linear layers."""

    def __init__(self, plant: str | None) -> None:
        super().__init__()
        self.plant = plant
        self.before, self.attention, self.between = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.activation = activation(nn.GELU(), plant)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = x + self.attention(self.before(x))
        wide = copied(self.activation(self.wide(self.between(x))), self.plant)
        return x + self.narrow(wide)


class Transformer(nn.Layer):
    """A transformer that predicts the next token at each position."""

    def __init__(self, plant: str | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*[Block(plant) for _ in layers(LAYERS, plant)])
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        found = self.last(self.norm(self.blocks(self.embedding(tokens))))
        return found.reshape([BATCH * LENGTH, TOKENS])


def samples(plant: str | None) -> Batches:
    tokens = np.random.RandomState(0).randint(0, TOKENS, (BATCH, LENGTH + 1))
    return Batches(tokens[:, :-1], tokens[:, 1:].reshape(-1), plant)


if __name__ == "__main__":
    main(Transformer, samples)
