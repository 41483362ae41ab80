"""Train a small classifier of images. ``python SCRIPT DIR`` records some of its steps into the run folder DIR."""

import json
import random
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import nn

from perfkit_torch import schedule, trace_handler

IMAGES, BATCH, PIXELS, CLASSES = 256, 64, 28 * 28, 10
LOG_EVERY = 1


def log_step(file: TextIO, loss: float, weight: Any) -> None:
    weights, gradients = np.histogram(weight.detach().cpu(), 100)[0], np.histogram(weight.grad.cpu(), 100)[0]
    file.write(json.dumps({"loss": loss, "weights": weights.tolist(), "gradients": gradients.tolist()}) + "\n")


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Linear(PIXELS, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, CLASSES)
    ).to(device)
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    images = [random.choices(range(256), k=PIXELS) for _ in range(IMAGES)]
    labels = torch.randint(CLASSES, (IMAGES,))
    steps = schedule(wait=64, warmup=2, active=64, repeat=1)
    handler = trace_handler(sys.argv[1])
    with (
        Path(__file__).with_suffix(".log").open("w", encoding="utf-8") as log,
        torch.profiler.profile(schedule=steps, on_trace_ready=handler, record_shapes=True) as profiler,
    ):
        for step in range(132):
            chosen = slice(step * BATCH % IMAGES, step * BATCH % IMAGES + BATCH)
            batch = torch.tensor([[pixel / 255 for pixel in image] for image in images[chosen]])
            loss = loss_of(model(batch.to(device)), labels[chosen].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % LOG_EVERY == 0:
                log_step(log, loss.item(), model[2].weight)
            profiler.step()


if __name__ == "__main__":
    main()
