"""The demo training in PyTorch. perfkit_paddle/demo.py is the same model, data and schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfkit_torch.capture import trace_handler

WARMUP: Final = 2
RECORDED: Final = 8
BATCH: Final = 64
SAMPLES: Final = 1024


def model() -> nn.Module:
    """A small conv net for 28×28 pictures of ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def data() -> DataLoader[tuple[torch.Tensor, ...]]:
    """Random pictures and labels, always the same."""
    random = np.random.RandomState(0)
    pictures = torch.from_numpy(random.rand(SAMPLES, 1, 28, 28).astype("float32"))
    labels = torch.from_numpy(random.randint(0, 10, SAMPLES).astype("int64"))
    return DataLoader(TensorDataset(pictures, labels), batch_size=BATCH)


def train(run_dir: Path) -> None:
    """WARMUP steps, then RECORDED ones into ``run_dir``."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = model().to(device)
    loss_of, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.profiler.schedule(wait=WARMUP - 1, warmup=1, active=RECORDED, repeat=1)
    with torch.profiler.profile(
        schedule=schedule, on_trace_ready=trace_handler(run_dir), record_shapes=True, profile_memory=True
    ) as profiler:
        for pictures, labels in data():
            loss = loss_of(net(pictures.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
            if profiler.step_num == WARMUP + RECORDED:
                break
