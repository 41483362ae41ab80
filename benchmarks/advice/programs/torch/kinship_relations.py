"""Train a relational graph network that tells the kinds of the entities in a knowledge graph. Its layers loop in Python
over the relations, and pass the messages of one relation at a time. Fix: sum the states of the neighbours by relation
with one index_add, and multiply them by the weights of all relations with one batched product."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ENTITIES, FACTS, RELATIONS, KINDS, WIDTH = 500, 8000, 48, 8, 32


class RelationalLayer(nn.Module):
    """Adds the mean of the neighbours of each relation, each multiplied by the weights of that relation."""

    def __init__(self, inputs: int, outputs: int, batched: bool) -> None:
        super().__init__()
        self.batched = batched
        self.itself = nn.Linear(inputs, outputs)
        self.weights = nn.Parameter(torch.randn(RELATIONS, inputs, outputs) * inputs**-0.5)

    def forward(self, states: torch.Tensor, facts: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        sources, relations, targets = facts
        result = self.itself(states)
        if self.batched:
            sums = states.new_zeros(RELATIONS * ENTITIES, states.shape[1])
            sums = sums.index_add(0, relations * ENTITIES + targets, states[sources] * shares[:, None])
            return result + torch.bmm(sums.view(RELATIONS, ENTITIES, -1), self.weights).sum(0)
        for relation, weights in enumerate(self.weights):
            chosen = relations == relation
            messages = states[sources[chosen]] @ weights
            result = result.index_add(0, targets[chosen], messages * shares[chosen, None])
        return result


class RelationalNetwork(nn.Module):
    def __init__(self, batched: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ENTITIES, WIDTH)
        self.first = RelationalLayer(WIDTH, WIDTH, batched)
        self.second = RelationalLayer(WIDTH, KINDS, batched)

    def forward(self, facts: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        states = F.relu(self.first(self.embedding.weight, facts, shares))
        return self.second(states, facts, shares)


def knowledge_graph() -> tuple[torch.Tensor, torch.Tensor]:
    """Facts as sources, relations and targets, and the kind of each entity. A relation tends to join two kinds."""
    kinds = torch.randint(KINDS, (ENTITIES,))
    sources = torch.randint(ENTITIES, (FACTS,))
    targets = torch.randint(ENTITIES, (FACTS,))
    typical = (kinds[sources] * KINDS + kinds[targets]) % RELATIONS
    relations = torch.where(torch.rand(FACTS) < 0.7, typical, torch.randint(RELATIONS, (FACTS,)))
    return torch.stack([sources, relations, targets]), kinds


def degree_shares(facts: torch.Tensor) -> torch.Tensor:
    """One over the number of facts that have the same relation and the same target."""
    groups = facts[1] * ENTITIES + facts[2]
    counts = torch.bincount(groups, minlength=RELATIONS * ENTITIES)
    return 1 / counts[groups].float()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    facts, kinds = knowledge_graph()
    known = torch.rand(ENTITIES) < 0.5
    model = RelationalNetwork(batched=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    accuracies = []
    while True:
        kept = facts[:, torch.rand(FACTS) < 0.8]
        scores = model(kept, degree_shares(kept))
        loss = F.cross_entropy(scores[known], kinds[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            accuracies.append((scores[~known].argmax(-1) == kinds[~known]).float().mean())
        yield


if __name__ == "__main__":
    run(training, "torch", steps=240)
