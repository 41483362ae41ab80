"""Train DQN to play Catch. The replay buffer holds tuples of Python lists, and each step makes tensors from such lists.
Fix: a replay buffer of numpy arrays, which are allocated once."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ROWS, COLUMNS, ACTIONS, HIDDEN, CAPACITY, BATCH, GAMMA = 12, 12, 3, 256, 10_000, 256, 0.99
CELLS = ROWS * COLUMNS
Batch = tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor, paddle.Tensor]


class Catch:
    """A ball falls through the board, and the player at the bottom has to catch it."""

    def reset(self) -> list[float]:
        self.row, self.ball, self.player = 0, random.randrange(COLUMNS), COLUMNS // 2
        return self.board()

    def board(self) -> list[float]:
        cells = [0.0] * CELLS
        cells[self.row * COLUMNS + self.ball] = 1.0
        cells[(ROWS - 1) * COLUMNS + self.player] = 1.0
        return cells

    def step(self, action: int) -> tuple[list[float], float, bool]:
        self.row += 1
        self.player = min(max(self.player + action - 1, 0), COLUMNS - 1)
        done = self.row == ROWS - 1
        reward = (1.0 if self.ball == self.player else -1.0) if done else 0.0
        return self.board(), reward, done


class ListBuffer:
    def __init__(self) -> None:
        self.transitions: deque[tuple[list[float], int, float, list[float], float]] = deque(maxlen=CAPACITY)

    def add(self, state: list[float], action: int, reward: float, following: list[float], done: bool) -> None:
        self.transitions.append((state, action, reward, following, float(done)))

    def sample(self) -> Batch:
        chosen = random.sample(range(len(self.transitions)), BATCH)
        states, actions, rewards, followings, dones = zip(*(self.transitions[i] for i in chosen), strict=True)
        return (
            paddle.to_tensor(states, dtype="float32"),
            paddle.to_tensor(actions, dtype="int64"),
            paddle.to_tensor(rewards, dtype="float32"),
            paddle.to_tensor(followings, dtype="float32"),
            paddle.to_tensor(dones, dtype="float32"),
        )


class ArrayBuffer:
    def __init__(self) -> None:
        self.count = 0
        self.states = np.zeros((CAPACITY, CELLS), dtype="float32")
        self.actions = np.zeros(CAPACITY, dtype="int64")
        self.rewards = np.zeros(CAPACITY, dtype="float32")
        self.followings = np.zeros((CAPACITY, CELLS), dtype="float32")
        self.dones = np.zeros(CAPACITY, dtype="float32")

    def add(self, state: list[float], action: int, reward: float, following: list[float], done: bool) -> None:
        i = self.count % CAPACITY
        self.states[i], self.actions[i], self.rewards[i] = state, action, reward
        self.followings[i], self.dones[i] = following, done
        self.count += 1

    def sample(self) -> Batch:
        chosen = random.sample(range(min(self.count, CAPACITY)), BATCH)
        states, actions, rewards, followings, dones = (
            paddle.to_tensor(values[chosen])
            for values in (self.states, self.actions, self.rewards, self.followings, self.dones)
        )
        return states, actions, rewards, followings, dones


def q_network() -> nn.Layer:
    return nn.Sequential(
        nn.Linear(CELLS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, ACTIONS)
    )


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    random.seed(0)
    game, buffer = Catch(), ArrayBuffer() if fixed else ListBuffer()
    network, target = q_network(), q_network()
    optimizer = paddle.optimizer.Adam(learning_rate=5e-4, parameters=network.parameters())
    state, played, updates = game.reset(), 0, 0
    while True:
        if random.random() < max(0.05, 1 - played / 5000):
            action = random.randrange(ACTIONS)
        else:
            with paddle.no_grad():
                action = int(network(paddle.to_tensor([state])).argmax())
        following, reward, done = game.step(action)
        buffer.add(state, action, reward, following, done)
        state = game.reset() if done else following
        played += 1
        if played < 1000 or played % 4 != 0:
            continue
        if updates % 200 == 0:
            target.set_state_dict(network.state_dict())
        states, actions, rewards, followings, dones = buffer.sample()
        with paddle.no_grad():
            goals = rewards + GAMMA * (1 - dones) * target(followings).max(axis=1)
        values = (network(states) * F.one_hot(actions, ACTIONS)).sum(axis=1)
        loss = F.smooth_l1_loss(values, goals)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        updates += 1
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=200)
