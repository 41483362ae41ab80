"""Train a policy with REINFORCE on 16 cart poles. The policy is asked once for every environment. Fix: it is asked once
for all of them. A step is a rollout of 20 moves and an update."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ENVIRONMENTS, MOVES, DISCOUNT = 16, 20, 0.99


class CartPole:
    GRAVITY, CART, POLE, LENGTH, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.state = self.reset()

    def reset(self) -> np.ndarray:
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state

    def step(self, right: bool) -> tuple[float, bool]:
        _, speed, angle, spin = self.state.tolist()
        mass = self.CART + self.POLE
        sine, cosine = math.sin(angle), math.cos(angle)
        push = ((self.FORCE if right else -self.FORCE) + self.POLE * self.LENGTH * spin**2 * sine) / mass
        inertia = self.LENGTH * (4 / 3 - self.POLE * cosine**2 / mass)
        twist = (self.GRAVITY * sine - cosine * push) / inertia
        pull = push - self.POLE * self.LENGTH * twist * cosine / mass
        self.state = self.state + self.TICK * np.array([speed, pull, spin, twist])
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        if fell:
            self.reset()
        return 1.0, bool(fell)


def policy_by_environment(policy: nn.Module, environments: list[CartPole]) -> torch.Tensor:
    logits = []
    for environment in environments:
        state = torch.from_numpy(environment.state).float().unsqueeze(0)
        logits.append(policy(state).squeeze())
    return torch.stack(logits)


def policy_for_all(policy: nn.Module, environments: list[CartPole]) -> torch.Tensor:
    states = torch.from_numpy(np.stack([environment.state for environment in environments])).float()
    return policy(states).squeeze(1)


def discounted(rewards: np.ndarray, ends: np.ndarray) -> torch.Tensor:
    returns = np.zeros_like(rewards)
    following = np.zeros(ENVIRONMENTS)
    for move in reversed(range(MOVES)):
        following = rewards[move] + DISCOUNT * following * ~ends[move]
        returns[move] = following
    return torch.from_numpy((returns - returns.mean()) / (returns.std() + 1e-8)).float()


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    environments = [CartPole(seed) for seed in range(ENVIRONMENTS)]
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    ask = policy_for_all if fixed else policy_by_environment
    while True:
        rewards = np.zeros((MOVES, ENVIRONMENTS))
        ends = np.zeros((MOVES, ENVIRONMENTS), dtype=bool)
        log_probabilities = []
        for move in range(MOVES):
            logits = ask(policy, environments)
            right = rng.random(ENVIRONMENTS) < torch.sigmoid(logits).detach().numpy()
            signs = torch.from_numpy(np.where(right, 1.0, -1.0)).float()
            log_probabilities.append(F.logsigmoid(signs * logits))
            for i, environment in enumerate(environments):
                rewards[move, i], ends[move, i] = environment.step(bool(right[i]))
        loss = -(torch.stack(log_probabilities) * discounted(rewards, ends)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
