"""Train a multi-gate mixture of experts that predicts clicks, likes and purchases from the features of a visit. All
experts see all visits, and a loop runs them one after the other. Fix: one bmm for all experts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

FEATURES, EXPERTS, HIDDEN, WIDTH, TASKS, BATCH = 96, 24, 64, 32, 3, 256


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.out(F.relu(self.hidden(x))))


class LoopedExperts(nn.Module):
    def __init__(self, experts: list[Expert]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(experts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([expert(x) for expert in self.experts], dim=0)


class StackedExperts(nn.Module):
    def __init__(self, experts: list[Expert]) -> None:
        super().__init__()
        self.weight1 = nn.Parameter(torch.stack([expert.hidden.weight.detach().T for expert in experts]))
        self.bias1 = nn.Parameter(torch.stack([expert.hidden.bias.detach()[None] for expert in experts]))
        self.weight2 = nn.Parameter(torch.stack([expert.out.weight.detach().T for expert in experts]))
        self.bias2 = nn.Parameter(torch.stack([expert.out.bias.detach()[None] for expert in experts]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(torch.bmm(x.expand(EXPERTS, -1, -1), self.weight1) + self.bias1)
        return F.relu(torch.bmm(hidden, self.weight2) + self.bias2)


class MultiGateMixture(nn.Module):
    def __init__(self, stacked: bool) -> None:
        super().__init__()
        experts = [Expert() for _ in range(EXPERTS)]
        self.experts = StackedExperts(experts) if stacked else LoopedExperts(experts)
        self.gates = nn.Linear(FEATURES, TASKS * EXPERTS)
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(TASKS)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = self.experts(x)
        gates = self.gates(x).unflatten(1, (TASKS, EXPERTS)).softmax(dim=2)
        mixed = torch.bmm(gates, outputs.transpose(0, 1))
        return torch.cat([tower(mixed[:, task]) for task, tower in enumerate(self.towers)], dim=1)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    visits = torch.randn(20_000, FEATURES)
    answers = (visits @ torch.randn(FEATURES, TASKS) > 12.0).float()
    loader = DataLoader(TensorDataset(visits, answers), batch_size=BATCH, shuffle=True, drop_last=True)
    model = MultiGateMixture(stacked=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for features, labels in loader:
            loss = F.binary_cross_entropy_with_logits(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=200)
