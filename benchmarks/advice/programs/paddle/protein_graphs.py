"""Train a graph isomorphism network that tells enzymes from other proteins. Every layer sums up the neighbours graph by
graph, in a loop over the batch. Fix: one batched product with the adjacency matrices."""

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

KINDS, NODES, WIDTH, LAYERS, BATCH = 3, 60, 64, 4, 32


class Proteins(Dataset):
    """Graphs of the secondary structure: the kind of each node, and which nodes are neighbours. Padded to ``NODES``."""

    def __init__(self, count: int) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.sizes = rng.integers(15, NODES + 1, count)
        self.labels = rng.integers(0, 2, count)
        self.nodes = np.zeros((count, NODES, KINDS), dtype=np.float32)
        self.adjacency = np.zeros((count, NODES, NODES), dtype=np.float32)
        for graph, size in enumerate(self.sizes):
            self.nodes[graph, :size] = np.eye(KINDS)[rng.integers(0, KINDS, size)]
            contacts = np.triu(rng.random((size, size)) < (3 + self.labels[graph]) / size, 1)
            chain = np.eye(size, k=1, dtype=bool)
            self.adjacency[graph, :size, :size] = contacts | contacts.T | chain | chain.T

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.int64]:
        present = (np.arange(NODES) < self.sizes[index]).astype(np.float32)
        return self.nodes[index], self.adjacency[index], present[:, None], self.labels[index]

    def __len__(self) -> int:
        return len(self.labels)


class GraphConvolution(nn.Layer):
    def __init__(self, inputs: int, batched: bool) -> None:
        super().__init__()
        self.batched = batched
        self.epsilon = self.create_parameter([1], default_initializer=nn.initializer.Constant(0.0))
        self.mlp = nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())

    def forward(self, nodes: paddle.Tensor, adjacency: paddle.Tensor) -> paddle.Tensor:
        if self.batched:
            neighbours = paddle.matmul(adjacency, nodes)
        else:
            neighbours = paddle.stack([paddle.matmul(adjacency[i], nodes[i]) for i in range(nodes.shape[0])])
        return self.mlp((1.0 + self.epsilon) * nodes + neighbours)


class GIN(nn.Layer):
    def __init__(self, batched: bool) -> None:
        super().__init__()
        self.convolutions = nn.LayerList(
            [GraphConvolution(WIDTH if layer else KINDS, batched) for layer in range(LAYERS)]
        )
        self.norms = nn.LayerList([nn.LayerNorm(WIDTH) for _ in range(LAYERS)])
        self.head = nn.Sequential(nn.Linear(LAYERS * WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.5), nn.Linear(WIDTH, 2))

    def forward(self, nodes: paddle.Tensor, adjacency: paddle.Tensor, present: paddle.Tensor) -> paddle.Tensor:
        pooled = []
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            nodes = norm(convolution(nodes, adjacency)) * present
            pooled.append(nodes.sum(axis=1) / present.sum(axis=1))
        return self.head(paddle.concat(pooled, axis=1))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    np.random.seed(0)
    loader = DataLoader(Proteins(1100), batch_size=BATCH, shuffle=True, drop_last=True)
    model = GIN(batched=fixed)
    optimizer = paddle.optimizer.Adam(learning_rate=1e-3, parameters=model.parameters())
    while True:
        for nodes, adjacency, present, labels in loader:
            loss = F.cross_entropy(model(nodes, adjacency, present), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=80)
