"""Train a policy that swings up a pendulum with an evolution strategy. The networks of the population act one after the
other. Fix: their weights are stacked, and one bmm per layer serves all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

POPULATION, EPISODES, MOVES, HIDDEN = 32, 8, 25, 32
SIGMA, LEARNING_RATE = 0.1, 0.03
SHAPES = {"w1": [3, HIDDEN], "b1": [1, HIDDEN], "w2": [HIDDEN, HIDDEN], "b2": [1, HIDDEN], "w3": [HIDDEN, 1]}

Weights = dict[str, paddle.Tensor]


class Pendulums:
    """Several episodes for each member of the population, all of them with the same starts."""

    def __init__(self, rng: np.random.Generator) -> None:
        starts = rng.uniform([-np.pi, -1.0], [np.pi, 1.0], (EPISODES, 2)).astype("float32")
        state = paddle.to_tensor(starts).expand([POPULATION, EPISODES, 2])
        self.angle, self.speed = state[:, :, 0], state[:, :, 1]

    def observe(self) -> paddle.Tensor:
        return paddle.stack([paddle.cos(self.angle), paddle.sin(self.angle), self.speed / 8.0], axis=-1)

    def move(self, torque: paddle.Tensor) -> paddle.Tensor:
        """Return the rewards."""
        angle = paddle.remainder(self.angle + np.pi, paddle.to_tensor(2 * np.pi)) - np.pi
        cost = angle**2 + 0.1 * self.speed**2 + 0.001 * torque**2
        self.speed = paddle.clip(self.speed + (15.0 * paddle.sin(self.angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
        self.angle = self.angle + self.speed * 0.05
        return -cost


def act(weights: Weights, observations: paddle.Tensor) -> paddle.Tensor:
    x = paddle.tanh(paddle.matmul(observations, weights["w1"]) + weights["b1"])
    x = paddle.tanh(paddle.matmul(x, weights["w2"]) + weights["b2"])
    return 2.0 * paddle.tanh(paddle.matmul(x, weights["w3"]))


def act_stacked(weights: Weights, observations: paddle.Tensor) -> paddle.Tensor:
    x = paddle.tanh(paddle.bmm(observations, weights["w1"]) + weights["b1"])
    x = paddle.tanh(paddle.bmm(x, weights["w2"]) + weights["b2"])
    return 2.0 * paddle.tanh(paddle.bmm(x, weights["w3"]))


def returns(population: Weights, pendulums: Pendulums, stacked: bool) -> paddle.Tensor:
    """Mean return of each member of the population."""
    total = paddle.zeros([POPULATION, EPISODES])
    if not stacked:
        members = [{name: stack[i] for name, stack in population.items()} for i in range(POPULATION)]
    for _ in range(MOVES):
        observations = pendulums.observe()
        if stacked:
            torques = act_stacked(population, observations)
        else:
            torques = paddle.stack([act(member, observations[i]) for i, member in enumerate(members)])
        total = total + pendulums.move(torques.squeeze(-1))
    return total.mean(axis=1)


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    rng = np.random.default_rng(0)
    mean = {name: paddle.randn(shape) / shape[0] ** 0.5 for name, shape in SHAPES.items()}
    while True:
        half = {name: paddle.randn([POPULATION // 2, *shape]) for name, shape in SHAPES.items()}
        noise = {name: paddle.concat([part, -part]) for name, part in half.items()}
        population = {name: mean[name] + SIGMA * noise[name] for name in SHAPES}
        scores = returns(population, Pendulums(rng), stacked=fixed)
        ranks = paddle.argsort(paddle.argsort(scores)).astype("float32") / (POPULATION - 1) - 0.5
        for name in SHAPES:
            gradient = (ranks.reshape([-1, 1, 1]) * noise[name]).mean(axis=0) / SIGMA
            mean[name] = mean[name] + LEARNING_RATE * gradient
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=60)
