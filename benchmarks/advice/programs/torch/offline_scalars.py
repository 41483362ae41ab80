"""Train an agent from recorded transitions only (implicit Q-learning). It reads four numbers for its log with item() in
each step. Fix: read them every 20 steps, as is advised for graphics cards; on a processor it changes nothing."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

EPISODES, EPISODE, STATE, ACTIONS, BATCH, WIDTH = 100, 200, 17, 6, 256, 256
DISCOUNT, EXPECTILE, TEMPERATURE, AVERAGE, LOG_EVERY = 0.99, 0.7, 3.0, 0.005, 20

Batch = tuple[torch.Tensor, ...]


class Recorded:
    """Transitions of an agent that pushes a noisy linear system towards zero, not always well."""

    def __init__(self) -> None:
        drift = torch.eye(STATE) + 0.05 * torch.randn(STATE, STATE)
        push = 0.3 * torch.randn(ACTIONS, STATE)
        states = torch.randn(EPISODES, STATE)
        steps = []
        for number in range(EPISODE):
            actions = torch.tanh(-0.5 * states @ push.T + 0.5 * torch.randn(EPISODES, ACTIONS))
            following = 0.9 * states @ drift + actions @ push + 0.05 * torch.randn(EPISODES, STATE)
            rewards = -following.square().mean(1)
            ends = torch.full((EPISODES,), float(number == EPISODE - 1))
            steps.append((states, actions, rewards, following.clamp(-10, 10), ends))
            states = following.clamp(-10, 10)
        self.columns = [torch.cat(column) for column in zip(*steps, strict=True)]

    def sample(self) -> Batch:
        chosen = torch.randint(0, EPISODES * EPISODE, (BATCH,))
        return tuple(column[chosen] for column in self.columns)


def perceptron(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs)
    )


class Critics(nn.Module):
    """Two estimates of the return of an action."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = perceptron(STATE + ACTIONS, 1), perceptron(STATE + ACTIONS, 1)

    def forward(self, states: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.cat([states, actions], dim=1)
        return self.first(inputs).squeeze(1), self.second(inputs).squeeze(1)


class Agent:
    def __init__(self) -> None:
        self.critics, self.value, self.policy = Critics(), perceptron(STATE, 1), perceptron(STATE, ACTIONS)
        self.target = deepcopy(self.critics).requires_grad_(False)
        self.trained = nn.ModuleList([self.critics, self.value, self.policy])
        self.optimizer = torch.optim.Adam(self.trained.parameters(), lr=3e-4)

    def update(self, states: torch.Tensor, actions: torch.Tensor, rewards: torch.Tensor, *rest: torch.Tensor) -> Batch:
        following, ends = rest
        with torch.no_grad():
            returns = torch.minimum(*self.target(states, actions))
            wanted = rewards + DISCOUNT * (1 - ends) * self.value(following).squeeze(1)
        advantages = returns - self.value(states).squeeze(1)
        weights = torch.where(advantages > 0, EXPECTILE, 1 - EXPECTILE)
        value_loss = (weights * advantages.square()).mean()
        critic_loss = sum(F.mse_loss(estimate, wanted) for estimate in self.critics(states, actions))
        misses = (torch.tanh(self.policy(states)) - actions).square().sum(1)
        policy_loss = (torch.exp(TEMPERATURE * advantages.detach()).clamp(max=100) * misses).mean()

        self.optimizer.zero_grad()
        (value_loss + critic_loss + policy_loss).backward()
        self.optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(self.target.parameters(), self.critics.parameters(), strict=True):
                average.lerp_(parameter, AVERAGE)
        return value_loss.detach(), critic_loss.detach(), policy_loss.detach(), advantages.detach().mean()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    recorded, agent = Recorded(), Agent()
    log: deque[list[float]] = deque(maxlen=100)
    while True:
        sums = torch.zeros(4) if fixed else [0.0] * 4
        for _ in range(LOG_EVERY):
            news = agent.update(*recorded.sample())
            if isinstance(sums, torch.Tensor):
                sums += torch.stack(news)
            else:
                sums = [total + number.item() for total, number in zip(sums, news, strict=True)]
            yield
        log.append([total / LOG_EVERY for total in (sums.tolist() if isinstance(sums, torch.Tensor) else sums)])


if __name__ == "__main__":
    run(training, "torch", steps=500)
