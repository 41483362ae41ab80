"""Train a deep Q-network from a replay memory of game frames. The target network is called under no_grad. Fix:
inference_mode."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ACTIONS, FRAMES, SIZE, MEMORY, BATCH = 6, 4, 84, 500, 32
GAMMA, TARGET_EVERY = 0.99, 100


class ReplayMemory:
    """Transitions of a game; the states are stacks of grey frames."""

    def __init__(self) -> None:
        self.frames = torch.randint(256, (MEMORY + FRAMES, SIZE, SIZE), dtype=torch.uint8)
        self.actions = torch.randint(ACTIONS, (MEMORY,))
        self.rewards = torch.randint(-1, 2, (MEMORY,)).float()
        self.done = (torch.rand(MEMORY) < 0.01).float()

    def states(self, rows: torch.Tensor) -> torch.Tensor:
        return self.frames[rows[:, None] + torch.arange(FRAMES)].float() / 255

    def sample(self) -> tuple[torch.Tensor, ...]:
        rows = torch.randint(MEMORY, (BATCH,))
        return self.states(rows), self.actions[rows], self.rewards[rows], self.states(rows + 1), self.done[rows]


def make_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(FRAMES, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, ACTIONS),
    )


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    without_gradients = torch.inference_mode if fixed else torch.no_grad
    memory = ReplayMemory()
    network, target_network = make_network(), make_network()
    target_network.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    step = 0
    while True:
        states, actions, rewards, next_states, done = memory.sample()
        with without_gradients():
            next_values = target_network(next_states).amax(dim=1)
        targets = rewards + GAMMA * (1 - done) * next_values
        values = network(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(values, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % TARGET_EVERY == 0:
            target_network.load_state_dict(network.state_dict())
        yield


if __name__ == "__main__":
    run(training, "torch", steps=80)
