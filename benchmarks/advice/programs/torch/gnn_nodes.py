"""Train a graph network that classifies graphs of about 200 nodes. Every layer loops over the nodes, and averages the
neighbours of one node at a time. Fix: one scatter over all edges (index_add)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

FEATURES, HIDDEN, LAYERS, CLASSES = 16, 64, 3, 6


@dataclass
class Graph:
    x: torch.Tensor
    edges: torch.Tensor
    """Shape (2, edges): sources and targets."""
    neighbours: list[torch.Tensor]
    """The sources of the edges of each target."""
    label: torch.Tensor


def random_graph() -> Graph:
    nodes = int(torch.randint(180, 221, ()))
    ring = torch.arange(nodes)
    chords = torch.randint(nodes, (2, 2 * nodes))
    edges = torch.cat([torch.stack([ring, ring.roll(1)]), chords], dim=1)
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    sources, targets = edges
    neighbours = [sources[targets == node] for node in range(nodes)]
    return Graph(torch.randn(nodes, FEATURES), edges, neighbours, torch.randint(CLASSES, ()))


def average_by_node(x: torch.Tensor, graph: Graph) -> torch.Tensor:
    return torch.stack([x[neighbours].mean(dim=0) for neighbours in graph.neighbours])


def average_by_edge(x: torch.Tensor, graph: Graph) -> torch.Tensor:
    sources, targets = graph.edges
    sums = torch.zeros_like(x).index_add(0, targets, x[sources])
    degrees = torch.bincount(targets, minlength=len(x))
    return sums / degrees.unsqueeze(1)


class GraphSage(nn.Module):
    def __init__(self, scatter: bool) -> None:
        super().__init__()
        self.average = average_by_edge if scatter else average_by_node
        widths = [FEATURES] + [HIDDEN] * LAYERS
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.others = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, graph: Graph) -> torch.Tensor:
        x = graph.x
        for own, others in zip(self.own, self.others, strict=True):
            x = F.relu(own(x) + others(self.average(x, graph)))
        return self.head(x.mean(dim=0))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    graphs = [random_graph() for _ in range(60)]
    model = GraphSage(scatter=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for i in torch.randperm(len(graphs)).tolist():
            graph = graphs[i]
            loss = F.cross_entropy(model(graph), graph.label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=200)
