"""Log histograms of the gradients of every hundredth step, computed in Python from numpy arrays."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import torch
from measured import layers, measured

EVERY = 100


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = layers(32, 128)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    log, steps = Path(gettempdir(), "gradients.jsonl"), iter(range(10**9))

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(batch).mean()
        loss.backward()
        if next(steps) % EVERY == 0:
            gradients = [one.grad.numpy() for one in model.parameters()]
            histograms = [np.histogram(one, 20)[0].tolist() for one in gradients]
            log.write_text(json.dumps({"loss": loss.item(), "gradients": histograms}))
        optimizer.step()

    measured([torch.randn(64, 128)], train)


if __name__ == "__main__":
    main()
