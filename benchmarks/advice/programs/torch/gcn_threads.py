"""Train a graph convolution network on batches of small molecules, with eight threads as on the author's workstation.
This machine has fewer cores. Fix: one thread per core that the process may use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

GRAPHS, NODES, FEATURES, WIDTH, LAYERS, BATCH = 1000, 24, 32, 128, 3, 64


class GraphConvolution(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(adjacency @ self.linear(x)))


class Gcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [FEATURES] + [WIDTH] * LAYERS
        self.layers = nn.ModuleList(GraphConvolution(*pair) for pair in pairwise(sizes))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, adjacency)
        return self.head(x.mean(dim=1)).squeeze(1)


def make_graphs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The features of the nodes, the normalized adjacency matrices and a property of each graph."""
    edges = torch.rand(GRAPHS, NODES, NODES) < 0.08
    adjacency = (edges | edges.transpose(1, 2) | torch.eye(NODES, dtype=torch.bool)).float()
    scale = adjacency.sum(dim=2).rsqrt()
    features = torch.randn(GRAPHS, NODES, FEATURES)
    return features, scale[:, :, None] * adjacency * scale[:, None, :], features.mean(dim=(1, 2)) * NODES


def training(fixed: bool) -> Iterator[None]:
    torch.set_num_threads(len(os.sched_getaffinity(0)) if fixed else 8)
    torch.manual_seed(0)
    features, adjacency, targets = make_graphs()
    model = Gcn()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for rows in torch.randperm(GRAPHS).split(BATCH):
            loss = F.mse_loss(model(features[rows], adjacency[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
