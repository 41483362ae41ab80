"""Train a Wasserstein GAN of wide layers that draws rings. Its networks run operator by operator, but large products
take most of the time. Fix: paddle.jit.to_static for both networks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
from paddle import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

SIZE, NOISE, WIDTH, BATCH, CRITIC_UPDATES, LIMIT = 24, 64, 512, 128, 2, 0.01


class Generator(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(NOISE, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, SIZE * SIZE),
            nn.Sigmoid(),
        )

    def forward(self, noise: paddle.Tensor) -> paddle.Tensor:
        return self.layers(noise)


class Critic(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(SIZE * SIZE, WIDTH),
            nn.LeakyReLU(0.2),
            nn.Linear(WIDTH, WIDTH),
            nn.LeakyReLU(0.2),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, pictures: paddle.Tensor) -> paddle.Tensor:
        return self.layers(pictures)


def rings(rng: np.random.Generator) -> Iterator[paddle.Tensor]:
    """Batches of pictures of a ring at some place."""
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j].astype(np.float32).reshape(2, 1, -1)
    while True:
        centre_x, centre_y = rng.uniform(-0.4, 0.4, (2, BATCH, 1)).astype(np.float32)
        radius = rng.uniform(0.3, 0.6, (BATCH, 1)).astype(np.float32)
        distance = np.hypot(x - centre_x, y - centre_y) - radius
        yield paddle.to_tensor(np.exp(-((distance / 0.1) ** 2)))


@paddle.no_grad()
def clip_weights(critic: nn.Layer) -> None:
    for parameter in critic.parameters():
        parameter.set_value(paddle.clip(parameter, -LIMIT, LIMIT))


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    pictures = rings(np.random.default_rng(0))
    generator, critic = Generator(), Critic()
    if fixed:
        generator, critic = paddle.jit.to_static(generator), paddle.jit.to_static(critic)
    generator_optimizer = paddle.optimizer.RMSProp(5e-5, parameters=generator.parameters())
    critic_optimizer = paddle.optimizer.RMSProp(5e-5, parameters=critic.parameters())
    step, distances = 0, []
    while True:
        for _ in range(CRITIC_UPDATES):
            drawn = generator(paddle.randn([BATCH, NOISE])).detach()
            distance = critic(next(pictures)).mean() - critic(drawn).mean()
            (-distance).backward()
            critic_optimizer.step()
            critic_optimizer.clear_grad()
            clip_weights(critic)
        loss = -critic(generator(paddle.randn([BATCH, NOISE]))).mean()
        loss.backward()
        generator_optimizer.step()
        generator_optimizer.clear_grad()
        critic_optimizer.clear_grad()
        step += 1
        if step % 20 == 0:
            distances.append(distance.item())
        yield


if __name__ == "__main__":
    run(training, "paddle", steps=70)
