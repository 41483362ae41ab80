"""Functions that all models of this folder use: command line, equal weights, training and recording.

../torch/training.py is the same for torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader
from planted import PLANTS

from perfkit.paddle import annotate, trace_handler

WARMUP = 3
LEARNING_RATE = 0.01


def main(
    build: Callable[[str | None], nn.Layer],
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


def equal_weights(model: nn.Layer) -> None:
    """Set the same initial weights as ../torch/training.py. Paddle's Linear has transposed weights."""
    random = np.random.RandomState(0)
    for layer in model.sublayers(include_self=True):
        for name, parameter in layer.named_parameters(include_sublayers=False):
            if parameter.ndim > 1:
                transposed = isinstance(layer, nn.Linear)
                shape = parameter.shape[::-1] if transposed else parameter.shape
                values = random.standard_normal(shape).astype("float32") / np.sqrt(np.prod(shape[1:]))
                parameter.set_value(values.astype("float32").T if transposed else values.astype("float32"))
            elif name == "bias":
                parameter.set_value(np.zeros(parameter.shape, "float32"))


def train(
    model: nn.Layer, loss_of: nn.Layer, loader: DataLoader, steps: int, learning_rate: float, run_dir: str | None
) -> None:
    """Train for this number of steps. Print the loss of each step."""
    optimizer = paddle.optimizer.SGD(learning_rate, parameters=model.parameters())
    handler = trace_handler(run_dir) if run_dir else None
    losses = []
    with paddle.profiler.Profiler(scheduler=(WARMUP, steps), on_trace_ready=handler) as profiler:
        for step, (inputs, labels) in enumerate(loader):
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(loss)
            profiler.step()
            if step + 1 == steps:
                break
    if handler:
        handler.flush()
    print(f"loss: {' '.join(f'{loss.item():.4f}' for loss in losses)}")
