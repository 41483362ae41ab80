"""Train a model that tells which clients of a bank will not pay back, from the months of their accounts. The clients
are records with nested lists, and each step builds its tensors from these lists. Fix: build the tensors of all clients
once, and take the rows of a batch from them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CLIENTS, MONTHS, AMOUNTS, JOBS, WIDTH, BATCH = 4096, 24, 9, 12, 32, 256


def read_clients() -> list[dict[str, Any]]:
    """The records as a parser of JSON would give them. Clients with falling balances tend not to pay back."""
    rng = np.random.default_rng(0)
    months = rng.normal(size=(CLIENTS, MONTHS, AMOUNTS)).cumsum(1) / MONTHS**0.5
    risk = months[:, 0, 0] - months[:, -1, 0] + 0.3 * rng.normal(size=CLIENTS)
    jobs = rng.integers(0, JOBS, CLIENTS)
    return [
        {"months": month, "job": job, "default": float(value > 0.8)}
        for month, job, value in zip(months.tolist(), jobs.tolist(), risk.tolist(), strict=True)
    ]


class CreditModel(nn.Module):
    """Reads the months one after the other, and adds what is known of the job."""

    def __init__(self) -> None:
        super().__init__()
        self.months = nn.GRU(AMOUNTS, WIDTH, batch_first=True)
        self.job = nn.Embedding(JOBS, WIDTH)
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.1), nn.Linear(WIDTH, 1))

    def forward(self, months: torch.Tensor, jobs: torch.Tensor) -> torch.Tensor:
        _, last = self.months(months)
        return self.head(torch.cat([last[0], self.job(jobs)], dim=-1)).squeeze(-1)


def tensors(clients: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    months = torch.tensor([client["months"] for client in clients])
    jobs = torch.tensor([client["job"] for client in clients])
    defaults = torch.tensor([client["default"] for client in clients])
    return months, jobs, defaults


def batches(clients: list[dict[str, Any]], fixed: bool) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Batches of shuffled clients, again and again."""
    if fixed:
        all_months, all_jobs, all_defaults = tensors(clients)
    while True:
        for chosen in torch.randperm(CLIENTS).split(BATCH):
            if fixed:
                yield all_months[chosen], all_jobs[chosen], all_defaults[chosen]
            else:
                yield tensors([clients[index] for index in chosen.tolist()])


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    model = CreditModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    weight = torch.tensor(3.0)
    caught, missed = torch.zeros(()), torch.zeros(())
    for months, jobs, defaults in batches(read_clients(), fixed):
        scores = model(months, jobs)
        loss = F.binary_cross_entropy_with_logits(scores, defaults, pos_weight=weight)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        caught += ((scores > 0) & (defaults > 0)).sum()
        missed += ((scores <= 0) & (defaults > 0)).sum()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=250)
