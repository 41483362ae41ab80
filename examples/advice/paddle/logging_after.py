"""Log histograms of the gradients of every hundredth step, computed in Python from numpy arrays."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import paddle
from measured import measured

EVERY = 100


def main() -> None:
    paddle.seed(0)
    model = paddle.nn.Sequential(*[paddle.nn.Linear(128, 128) for _ in range(32)])
    optimizer = paddle.optimizer.SGD(1e-6, parameters=model.parameters())
    log, steps = Path(gettempdir(), "gradients.jsonl"), iter(range(10**9))

    def train(batch: paddle.Tensor) -> None:
        optimizer.clear_grad()
        loss = model(batch).mean()
        loss.backward()
        if next(steps) % EVERY == 0:
            gradients = [one.grad.numpy() for one in model.parameters()]
            histograms = [np.histogram(one, 20)[0].tolist() for one in gradients]
            log.write_text(json.dumps({"loss": float(loss), "gradients": histograms}))
        optimizer.step()

    measured([paddle.randn([64, 128])], train)


if __name__ == "__main__":
    main()
