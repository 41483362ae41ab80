"""Train the policy of a contextual bandit that chooses articles for visitors. The loss is read and logged each step.
Fix: log it every 50 steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

CONTEXT, ARTICLES, WIDTH, VISITORS = 32, 20, 64, 2048


class Site:
    """Visitors with different tastes, who click an article with a probability that depends on their context."""

    def __init__(self) -> None:
        self.tastes = torch.randn(CONTEXT, ARTICLES) / CONTEXT**0.5

    def visitors(self) -> torch.Tensor:
        return torch.randn(VISITORS, CONTEXT)

    def clicks(self, contexts: torch.Tensor, articles: torch.Tensor) -> torch.Tensor:
        interest = (contexts @ self.tastes).gather(1, articles[:, None]).squeeze(1)
        return torch.bernoulli(torch.sigmoid(interest - 1))


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    log_every = 50 if fixed else 1
    site = Site()
    policy = nn.Sequential(
        nn.Linear(CONTEXT, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, ARTICLES)
    )
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    baseline = torch.zeros(())
    losses = []
    step = 0
    while True:
        contexts = site.visitors()
        choice = torch.distributions.Categorical(logits=policy(contexts))
        articles = choice.sample()
        rewards = site.clicks(contexts, articles)
        baseline = 0.99 * baseline + 0.01 * rewards.mean()
        loss = -((rewards - baseline) * choice.log_prob(articles)).mean() - 0.01 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % log_every == 0:
            losses.append(loss.item())
        yield


if __name__ == "__main__":
    run(training, "torch", steps=500)
