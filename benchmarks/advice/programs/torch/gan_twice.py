"""Train a small DCGAN on 32x32 images. The generator makes its images twice per step from the same noise: once to train
the discriminator, and again to train the generator. Fix: make them once, and detach them for the discriminator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

NOISE, WIDTH, BATCH = 100, 32, 64


def upsample(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)
    )


def downsample(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True)
    )


def make_generator() -> nn.Sequential:
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, 4 * WIDTH, 4, bias=False),
        nn.BatchNorm2d(4 * WIDTH),
        nn.ReLU(True),
        upsample(4 * WIDTH, 2 * WIDTH),
        upsample(2 * WIDTH, WIDTH),
        nn.ConvTranspose2d(WIDTH, 3, 4, stride=2, padding=1),
        nn.Tanh(),
    )


def make_discriminator() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, WIDTH, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2, True),
        downsample(WIDTH, 2 * WIDTH),
        downsample(2 * WIDTH, 4 * WIDTH),
        nn.Conv2d(4 * WIDTH, 1, 4),
        nn.Flatten(0),
    )


def init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    images = TensorDataset(torch.rand(2048, 3, 32, 32) * 2 - 1)
    loader = DataLoader(images, batch_size=BATCH, shuffle=True, drop_last=True)
    generator, discriminator = make_generator().apply(init_weights), make_discriminator().apply(init_weights)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real_labels, fake_labels = torch.ones(BATCH), torch.zeros(BATCH)
    while True:
        for (real,) in loader:
            noise = torch.randn(BATCH, NOISE, 1, 1)

            fake = generator(noise)
            loss_d = F.binary_cross_entropy_with_logits(discriminator(real), real_labels)
            loss_d = loss_d + F.binary_cross_entropy_with_logits(discriminator(fake.detach()), fake_labels)
            optimizer_d.zero_grad()
            loss_d.backward()
            optimizer_d.step()

            if not fixed:
                fake = generator(noise)
            loss = F.binary_cross_entropy_with_logits(discriminator(fake), real_labels)
            optimizer_g.zero_grad()
            loss.backward()
            optimizer_g.step()
            yield


if __name__ == "__main__":
    run(training, "torch", steps=60)
