"""Functions that all models of this folder use: command line, equal weights, training and recording.

../paddle/training.py is the same for Paddle.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from planted import PLANTS
from torch import nn
from torch.utils.data import DataLoader

from perfkit.torch import annotate, trace_handler

WARMUP = 3
LEARNING_RATE = 0.01


def main(
    build: Callable[[str | None], nn.Module],
    samples: Callable[[str | None], Any],
    learning_rate: float = LEARNING_RATE,
) -> None:
    """Train the model that ``build`` returns on batches of ``samples``. The command line selects the regression."""
    asked = argparse.ArgumentParser()
    asked.add_argument(
        "--steps", type=int, default=10, help=f"number of steps after the first {WARMUP} steps, which are not recorded"
    )
    asked.add_argument("--record", metavar="DIR", help="run folder for the recording")
    asked.add_argument("--annotate", action="store_true", help="label the layers of the model")
    asked.add_argument("--plant", choices=PLANTS, help="regression to plant")
    options = asked.parse_args()
    model = build(options.plant)
    equal_weights(model)
    loader = DataLoader(samples(options.plant), batch_size=None)
    loss_of = nn.CrossEntropyLoss()
    with ExitStack() as labels:
        if options.annotate:
            labels.enter_context(annotate(model))
            labels.enter_context(annotate(loss_of, name="loss"))
        train(model, loss_of, loader, WARMUP + options.steps, learning_rate, options.record)


def equal_weights(model: nn.Module) -> None:
    """Set the same initial weights as ../paddle/training.py. Paddle's Linear has transposed weights."""
    random = np.random.RandomState(0)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            inputs = parameter[0].numel()
            values = random.standard_normal(parameter.shape).astype("float32") / np.sqrt(inputs)
            parameter.data.copy_(torch.from_numpy(values))
        elif name.endswith("bias"):
            parameter.data.zero_()


def train(
    model: nn.Module, loss_of: nn.Module, loader: DataLoader[Any], steps: int, learning_rate: float, run_dir: str | None
) -> None:
    """Train for this number of steps. Print the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), learning_rate)
    schedule = torch.profiler.schedule(wait=WARMUP - 1, warmup=1, active=steps - WARMUP)
    handler = trace_handler(run_dir) if run_dir else None
    losses = []
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler, record_shapes=True) as profiler:
        for step, (inputs, labels) in enumerate(loader):
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss)
            profiler.step()
            if step + 1 == steps:
                break
    if handler:
        handler.flush()
    print(f"loss: {' '.join(f'{loss.item():.4f}' for loss in losses)}")
