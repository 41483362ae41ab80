"""Train a network that finds the joints of a body, by a heat map of each joint. Each step writes the norms, means and
histograms of all weights and gradients to a file. Fix: write them every 50 steps."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import run

PICTURES, SIZE, JOINTS, WIDTH, BATCH, BINS = 256, 48, 8, 20, 8, 64
MAP = SIZE // 4


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Hourglass(nn.Module):
    """Halves the maps twice and doubles them again, and adds the maps of the same size."""

    def __init__(self) -> None:
        super().__init__()
        self.same = convolution(WIDTH, WIDTH)
        self.down1, self.down2 = convolution(WIDTH, WIDTH, 2), convolution(WIDTH, WIDTH, 2)
        self.inner, self.up = convolution(WIDTH, WIDTH), convolution(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = self.down1(x)
        inner = half + F.interpolate(self.inner(self.down2(half)), scale_factor=2)
        return self.same(x) + F.interpolate(self.up(inner), scale_factor=2)


def pose_network() -> nn.Module:
    return nn.Sequential(
        convolution(1, WIDTH, 2),
        convolution(WIDTH, WIDTH, 2),
        Hourglass(),
        convolution(WIDTH, WIDTH),
        Hourglass(),
        convolution(WIDTH, WIDTH),
        nn.Conv2d(WIDTH, JOINTS, 1),
    )


def bodies() -> TensorDataset:
    """Pictures in which each joint is a spot of its own brightness, and a heat map of each joint."""
    places = torch.rand(PICTURES, JOINTS, 2) * 0.8 + 0.1

    def spots(size: int, spread: float) -> torch.Tensor:
        line = (torch.arange(size) + 0.5) / size
        curves = torch.exp(-((line - places[..., None]) ** 2) / (2 * spread**2))
        return curves[:, :, 0, :, None] * curves[:, :, 1, None, :]

    brightness = torch.linspace(0.3, 1, JOINTS)[None, :, None, None]
    pictures = (spots(SIZE, 0.03) * brightness).sum(1, keepdim=True)
    return TensorDataset(pictures + 0.05 * torch.randn_like(pictures), spots(MAP, 0.08))


def write_statistics(model: nn.Module, step: int, file: TextIO) -> None:
    for name, parameter in model.named_parameters():
        record = {"step": step, "name": name}
        for kind, tensor in (("weight", parameter.detach()), ("gradient", parameter.grad)):
            low, high = tensor.min().item(), tensor.max().item()
            mean, deviation = tensor.mean().item(), tensor.std().item()
            counts = torch.histc(tensor, BINS, low, high).tolist()
            record[kind] = {"norm": tensor.norm().item(), "mean": mean, "deviation": deviation}
            record[kind] |= {"low": low, "high": high, "counts": counts}
        file.write(json.dumps(record) + "\n")


def training(fixed: bool) -> Iterator[None]:
    torch.manual_seed(0)
    every = 50 if fixed else 1
    loader = DataLoader(bodies(), batch_size=BATCH, shuffle=True)
    model = pose_network()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    step, distance = 0, torch.zeros(())
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "statistics.jsonl").open("w") as file:
        while True:
            for pictures, maps in loader:
                predicted = model(pictures)
                loss = F.mse_loss(predicted, maps)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found, true = predicted.detach().flatten(2).argmax(-1), maps.flatten(2).argmax(-1)
                rows, columns = found // MAP - true // MAP, found % MAP - true % MAP
                distance += (rows.square() + columns.square()).float().sqrt().mean()
                step += 1
                if step % every == 0:
                    write_statistics(model, step, file)
                yield


if __name__ == "__main__":
    run(training, "torch", steps=200)
