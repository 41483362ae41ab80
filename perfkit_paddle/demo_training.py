"""Train a small classifier of images. ``python SCRIPT DIR`` records some of its steps into the run folder DIR."""

import json
import random
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import paddle
from paddle import nn

from perfkit_paddle import make_scheduler, trace_handler

IMAGES, BATCH, PIXELS, CLASSES = 256, 64, 28 * 28, 10
LOG_EVERY = 1


def log_step(file: TextIO, loss: float, weight: Any) -> None:
    weights, gradients = np.histogram(weight.numpy(), 100)[0], np.histogram(weight.grad.numpy(), 100)[0]
    file.write(json.dumps({"loss": loss, "weights": weights.tolist(), "gradients": gradients.tolist()}) + "\n")


def main() -> None:
    model = nn.Sequential(
        nn.Linear(PIXELS, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, CLASSES)
    )  # fmt: skip
    loss_of = nn.CrossEntropyLoss()
    optimizer = paddle.optimizer.SGD(1e-3, parameters=model.parameters())

    images = [random.choices(range(256), k=PIXELS) for _ in range(IMAGES)]
    labels = paddle.randint(0, CLASSES, [IMAGES])
    steps = make_scheduler(closed=64, ready=2, record=64, repeat=1)
    handler = trace_handler(sys.argv[1])
    with (
        Path(__file__).with_suffix(".log").open("w", encoding="utf-8") as log,
        paddle.profiler.Profiler(scheduler=steps, on_trace_ready=handler) as profiler,
    ):
        for step in range(132):
            chosen = slice(step * BATCH % IMAGES, step * BATCH % IMAGES + BATCH)
            batch = paddle.to_tensor([[pixel / 255 for pixel in image] for image in images[chosen]])
            loss = loss_of(model(batch), labels[chosen])
            loss.backward()
            optimizer.step()
            if step % LOG_EVERY == 0:
                log_step(log, loss.item(), model[2].weight)
            optimizer.clear_grad()
            profiler.step()


if __name__ == "__main__":
    main()
