"""Train an MLP-Mixer on small images. GELU and layer normalisation are written by hand from elementwise operators.
Fix: the functions of ``paddle.nn.functional``."""

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

CLASSES, SIZE, PATCH, WIDTH, LAYERS, BATCH = 10, 32, 4, 64, 3, 16
PATCHES = (SIZE // PATCH) ** 2


class GELU(nn.Layer):
    def __init__(self, builtin: bool) -> None:
        super().__init__()
        self.builtin = builtin

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if self.builtin:
            return F.gelu(x, approximate=True)
        return 0.5 * x * (1.0 + paddle.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


class LayerNorm(nn.Layer):
    def __init__(self, width: int, builtin: bool) -> None:
        super().__init__()
        self.builtin = builtin
        self.weight = self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([width], is_bias=True)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if self.builtin:
            return F.layer_norm(x, [x.shape[-1]], self.weight, self.bias)
        centred = x - x.mean(axis=-1, keepdim=True)
        variance = (centred * centred).mean(axis=-1, keepdim=True)
        return centred / paddle.sqrt(variance + 1e-5) * self.weight + self.bias


def mlp(width: int, hidden: int, builtin: bool) -> nn.Layer:
    return nn.Sequential(nn.Linear(width, hidden), GELU(builtin), nn.Linear(hidden, width))


class MixerBlock(nn.Layer):
    def __init__(self, builtin: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = LayerNorm(WIDTH, builtin), LayerNorm(WIDTH, builtin)
        self.tokens = mlp(PATCHES, 2 * PATCHES, builtin)
        self.channels = mlp(WIDTH, 4 * WIDTH, builtin)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = x + self.tokens(self.norm1(x).transpose([0, 2, 1])).transpose([0, 2, 1])
        return x + self.channels(self.norm2(x))


class Mixer(nn.Layer):
    def __init__(self, builtin: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2D(3, WIDTH, PATCH, stride=PATCH)
        self.blocks = nn.Sequential(*(MixerBlock(builtin) for _ in range(LAYERS)))
        self.norm = LayerNorm(WIDTH, builtin)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        x = self.patches(images).flatten(2).transpose([0, 2, 1])
        return self.head(self.norm(self.blocks(x)).mean(axis=1))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    images = paddle.randn([1024, 3, SIZE, SIZE])
    labels = paddle.randint(0, CLASSES, [len(images)])
    model = Mixer(builtin=fixed)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    while True:
        batch = paddle.randint(0, len(images), [BATCH])
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=50)
