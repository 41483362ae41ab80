"""Train an actor-critic that balances poles in eight environments. The network is called for each environment.
Fix: it is called for all environments at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

ENVIRONMENTS, ROLLOUT, WIDTH, DISCOUNT = 8, 16, 64, 0.99


class CartPole:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        self.state = self.random.uniform(-0.05, 0.05, size=4)

    def step(self, action: int) -> tuple[float, bool]:
        _, speed, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * spin**2 * math.sin(angle)) / 1.1
        turn = (9.8 * math.sin(angle) - math.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        acceleration = push - 0.05 * turn * math.cos(angle) / 1.1
        self.state = self.state + 0.02 * np.array([speed, acceleration, spin, turn])
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        if fallen:
            self.reset()
        return 1.0, bool(fallen)


class ActorCritic(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.actor, self.critic = nn.Linear(WIDTH, 2), nn.Linear(WIDTH, 1)

    def forward(self, states: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        x = self.body(states)
        return F.log_softmax(self.actor(x)), self.critic(x).squeeze(-1)


def evaluate(model: ActorCritic, states: np.ndarray, batched: bool) -> tuple[paddle.Tensor, paddle.Tensor]:
    if batched:
        return model(paddle.to_tensor(states))
    outputs = [model(paddle.to_tensor(state)) for state in states]
    return paddle.stack([output[0] for output in outputs]), paddle.stack([output[1] for output in outputs])


def observe(environments: list[CartPole]) -> np.ndarray:
    return np.stack([environment.state for environment in environments]).astype(np.float32)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    random = np.random.default_rng(0)
    environments = [CartPole(seed) for seed in range(ENVIRONMENTS)]
    model = ActorCritic()
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
    while True:
        policies, values, actions = [], [], []
        rewards, running = np.zeros((2, ROLLOUT, ENVIRONMENTS), dtype=np.float32)
        for time in range(ROLLOUT):
            policy, value = evaluate(model, observe(environments), batched=fixed)
            chosen = (random.random(ENVIRONMENTS) < np.exp(policy.numpy()[:, 1])).astype(np.int64)
            for index, (environment, action) in enumerate(zip(environments, chosen, strict=True)):
                rewards[time, index], fallen = environment.step(int(action))
                running[time, index] = not fallen
            policies.append(policy)
            values.append(value)
            actions.append(chosen)
        with paddle.no_grad():
            following = evaluate(model, observe(environments), batched=fixed)[1].numpy()
        returns = np.zeros_like(rewards)
        for time in reversed(range(ROLLOUT)):
            following = rewards[time] + DISCOUNT * running[time] * following
            returns[time] = following

        policy, value = paddle.stack(policies), paddle.stack(values)
        taken = paddle.take_along_axis(policy, paddle.to_tensor(np.stack(actions)).unsqueeze(2), axis=2).squeeze(2)
        advantage = paddle.to_tensor(returns) - value
        entropy = -(policy.exp() * policy).sum(axis=2).mean()
        loss = 0.5 * advantage.square().mean() - (taken * advantage.detach()).mean() - 0.01 * entropy
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=60)
