"""Train a graph attention network that finds the topics of papers in a citation graph. Each head of attention has its
own linear layer, and a loop runs the heads one after the other. Fix: one linear layer, and all heads at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.geometric import segment_sum
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PAPERS, CITATIONS, WORDS, TOPICS, HEADS, WIDTH = 2000, 4500, 500, 7, 8, 8


class Attention(nn.Layer):
    """One or more heads of graph attention. Edges are sorted by the node that they lead to."""

    def __init__(self, inputs: int, outputs: int, heads: int = 1) -> None:
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.linear = nn.Linear(inputs, heads * outputs, bias_attr=False)
        self.from_weight = self.create_parameter([1, heads, outputs])
        self.to_weight = self.create_parameter([1, heads, outputs])

    def forward(self, x: paddle.Tensor, sources: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
        nodes = self.linear(x).reshape([-1, self.heads, self.outputs])
        from_scores = (nodes * self.from_weight).sum(axis=2)
        to_scores = (nodes * self.to_weight).sum(axis=2)
        scores = F.leaky_relu(paddle.gather(from_scores, sources) + paddle.gather(to_scores, targets), 0.2)
        weights = paddle.exp(scores)
        messages = paddle.gather(nodes, sources) * weights.unsqueeze(2)
        sums = segment_sum(messages.flatten(1), targets).reshape([-1, self.heads, self.outputs])
        return (sums / segment_sum(weights, targets).unsqueeze(2)).flatten(1)


class GAT(nn.Layer):
    def __init__(self, one_layer: bool) -> None:
        super().__init__()
        if one_layer:
            self.attention = nn.LayerList([Attention(WORDS, WIDTH, HEADS)])
        else:
            self.attention = nn.LayerList([Attention(WORDS, WIDTH) for _ in range(HEADS)])
        self.out = Attention(HEADS * WIDTH, TOPICS)

    def forward(self, x: paddle.Tensor, sources: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
        x = paddle.concat([attention(x, sources, targets) for attention in self.attention], axis=1)
        return self.out(F.elu(x), sources, targets)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    features = (rng.random((PAPERS, WORDS)) < 0.05).astype("float32")
    features /= features.sum(axis=1, keepdims=True)
    x = paddle.to_tensor(features)
    labels = paddle.to_tensor(rng.integers(0, TOPICS, PAPERS))
    known = paddle.to_tensor(rng.choice(PAPERS, 20 * TOPICS, replace=False))
    links = rng.integers(0, PAPERS, (2, CITATIONS))
    edges = np.concatenate([links, links[::-1], np.tile(np.arange(PAPERS), (2, 1))], axis=1)
    edges = edges[:, np.argsort(edges[1], kind="stable")]
    sources, targets = paddle.to_tensor(edges[0]), paddle.to_tensor(edges[1])
    model = GAT(one_layer=fixed)
    optimizer = paddle.optimizer.Adam(learning_rate=5e-3, weight_decay=5e-4, parameters=model.parameters())
    while True:
        logits = model(x, sources, targets)
        loss = F.cross_entropy(paddle.gather(logits, known), paddle.gather(labels, known))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=60)
