"""Train a neural differential equation that imitates a damped double pendulum. The loss rolls the learned dynamics out
over short windows with Runge-Kutta, one trajectory after the other. Fix: all trajectories of the batch at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

WIDTH, TRAJECTORIES, LENGTH, WINDOW, STEP, BATCH = 64, 200, 100, 8, 0.05, 8


def runge_kutta(dynamics: Callable[[torch.Tensor], torch.Tensor], state: torch.Tensor) -> torch.Tensor:
    k1 = dynamics(state)
    k2 = dynamics(state + STEP / 2 * k1)
    k3 = dynamics(state + STEP / 2 * k2)
    k4 = dynamics(state + STEP * k3)
    return state + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def rollout(dynamics: Callable[[torch.Tensor], torch.Tensor], state: torch.Tensor, steps: int) -> torch.Tensor:
    """The states after each step; the time is their second to last dimension."""
    states = []
    for _ in range(steps):
        state = runge_kutta(dynamics, state)
        states.append(state)
    return torch.stack(states, dim=-2)


def double_pendulum(state: torch.Tensor) -> torch.Tensor:
    """The time derivative of both angles and both angular velocities, for equal masses and lengths."""
    angle1, angle2, speed1, speed2 = state.unbind(-1)
    difference = angle1 - angle2
    sine, cosine = difference.sin(), difference.cos()
    divisor = 2 - cosine**2
    push1 = -(speed2**2) * sine - 2 * 9.81 * angle1.sin()
    push2 = speed1**2 * sine - 9.81 * angle2.sin()
    acceleration1 = (push1 - cosine * push2) / divisor - 0.1 * speed1
    acceleration2 = (2 * push2 - cosine * push1) / divisor - 0.1 * speed2
    return torch.stack([speed1, speed2, acceleration1, acceleration2], dim=-1)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    starts = torch.randn(TRAJECTORIES, 4) * torch.tensor([0.5, 0.5, 0.2, 0.2])
    data = torch.cat([starts[:, None], rollout(double_pendulum, starts, LENGTH)], dim=1)
    dynamics = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4))
    optimizer = torch.optim.Adam(dynamics.parameters(), lr=2e-3)
    while True:
        chosen = torch.randint(TRAJECTORIES, (BATCH,))
        begins = torch.randint(LENGTH - WINDOW, (BATCH,))
        windows = torch.stack([data[i, t : t + WINDOW + 1] for i, t in zip(chosen, begins, strict=True)])
        if fixed:
            loss = (rollout(dynamics, windows[:, 0], WINDOW) - windows[:, 1:]).square().mean()
        else:
            errors = []
            for window in windows:
                errors.append((rollout(dynamics, window[0], WINDOW) - window[1:]).square().mean())
            loss = torch.stack(errors).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
