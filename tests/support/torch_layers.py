"""Torch models whose events are hard to assign to layers: with branches, in-place changes, shared layers and nested
containers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """A residual block with a branch, and an in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.short = nn.Conv2d(3, 4, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.short(x)


class Net(nn.Module):
    """A model with convolutions, attention, a layer that is called twice, and its own parameter. Its outputs are in a
    dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
        self.shared = nn.Linear(4, 4)
        self.again = self.shared
        self.scale = nn.Parameter(torch.ones(4))
        self.unused = nn.Linear(2, 2)

    def forward(self, picture: torch.Tensor, *, shift: torch.Tensor | None = None) -> dict[str, Any]:
        x = picture
        for block in self.blocks:
            x = block(x)
        x = self.attention(x.flatten(2).transpose(1, 2) * self.scale)
        x = self.again(torch.relu_(self.shared(x)))
        return {"logits": (x if shift is None else x + shift).mean(1), "nothing": None}


def picture() -> torch.Tensor:
    return torch.randn(2, 3, 4, 4)
