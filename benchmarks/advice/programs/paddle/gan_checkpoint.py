"""Train a GAN on small images. Every step saves both networks and their optimizers. Fix: every 50 steps."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

NOISE, PIXELS, BATCH = 64, 28 * 28, 64


def generator_network() -> nn.Layer:
    return nn.Sequential(
        nn.Linear(NOISE, 128),
        nn.LeakyReLU(0.2),
        nn.Linear(128, 256),
        nn.BatchNorm1D(256),
        nn.LeakyReLU(0.2),
        nn.Linear(256, PIXELS),
        nn.Tanh(),
    )


def discriminator_network() -> nn.Layer:
    return nn.Sequential(
        nn.Linear(PIXELS, 256), nn.LeakyReLU(0.2), nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1)
    )


def adam(network: nn.Layer) -> paddle.optimizer.Optimizer:
    return paddle.optimizer.Adam(2e-4, beta1=0.5, parameters=network.parameters())


def training(fixed: bool) -> Iterator[None]:
    paddle.seed(0)
    images = paddle.tanh(paddle.randn([4096, PIXELS]))
    generator, discriminator = generator_network(), discriminator_network()
    generator_optimizer, discriminator_optimizer = adam(generator), adam(discriminator)
    real, fake = paddle.ones([BATCH, 1]), paddle.zeros([BATCH, 1])
    saved = {
        "generator.pdparams": generator,
        "discriminator.pdparams": discriminator,
        "generator.pdopt": generator_optimizer,
        "discriminator.pdopt": discriminator_optimizer,
    }
    save_every = 50 if fixed else 1
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            batch = images[paddle.randint(0, len(images), [BATCH])]
            generated = generator(paddle.randn([BATCH, NOISE]))
            loss_real = F.binary_cross_entropy_with_logits(discriminator(batch), real)
            loss_fake = F.binary_cross_entropy_with_logits(discriminator(generated.detach()), fake)
            (loss_real + loss_fake).backward()
            discriminator_optimizer.step()
            discriminator_optimizer.clear_grad()

            loss = F.binary_cross_entropy_with_logits(discriminator(generated), real)
            loss.backward()
            generator_optimizer.step()
            generator_optimizer.clear_grad()
            discriminator_optimizer.clear_grad()

            if step % save_every == 0:
                for name, item in saved.items():
                    paddle.save(item.state_dict(), str(Path(folder) / name))
            step += 1
            yield


if __name__ == "__main__":
    run(training, "paddle", steps=110)
