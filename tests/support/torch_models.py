"""Small torch trainings that the live tests record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Transformer(nn.Module):
    """One encoder layer over an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
        self.head = nn.Linear(32, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens))).mean(dim=1)


def mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(8, 16)


def conv() -> tuple[nn.Module, torch.Tensor]:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    return net, torch.randn(4, 3, 16, 16)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    return Transformer(), torch.randint(0, 64, (4, 12))


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {"mlp": mlp, "conv": conv, "transformer": transformer}


def train(name: str, on_trace_ready: Callable[[Any], Any], steps: int = 4, **options: Any) -> None:
    """Train with torch.profiler. Its schedule repeats one step of waiting, one of warm-up and two recorded steps. Every
    iteration has a user label."""
    torch.manual_seed(0)
    net, batch = MODELS[name]()
    optimizer = torch.optim.Adam(net.parameters())
    loader = torch.utils.data.DataLoader([batch[0]] * (len(batch) * steps), batch_size=len(batch))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=on_trace_ready, **options) as profiler:
        for inputs in loader:
            with torch.profiler.record_function("iteration"):
                net(inputs).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()
