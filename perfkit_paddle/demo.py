"""The demo: a small image classifier on synthetic data, recorded with Paddle's own profiler and perfkit's handler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit_core.errors import CaptureError
from perfkit_paddle import framework
from perfkit_paddle.capture import trace_handler

SAMPLES: Final = 1024
BATCH: Final = 64
WARM_UP_STEPS: Final = 2
RECORDED_STEPS: Final = 8
LEARNING_RATE: Final = 1e-3
_SIDE: Final = 28
_CLASSES: Final = 10
_SEED: Final = 0


def demo(run_dir: Path, report: Callable[[str], None]) -> None:
    """Train for ten steps, record the last eight into ``run_dir``. Raises CaptureError when Paddle cannot."""
    paddle, profiling = framework.paddle(), framework.profiler()
    paddle.seed(_SEED)
    model = _model(paddle)
    loss_of = paddle.nn.CrossEntropyLoss()
    optimizer = paddle.optimizer.Adam(LEARNING_RATE, parameters=model.parameters())
    report(f"training {WARM_UP_STEPS + RECORDED_STEPS} steps of batch {BATCH} with PaddlePaddle {paddle.__version__}")
    schedule = profiling.make_scheduler(closed=0, ready=WARM_UP_STEPS, record=RECORDED_STEPS, repeat=1)
    profiler = profiling.Profiler(scheduler=schedule, on_trace_ready=trace_handler(run_dir), profile_memory=True)
    try:
        profiler.start()
    except AttributeError:
        raise CaptureError("paddle.profiler cannot start: another Profiler exists in this process") from None
    for step, (images, labels) in enumerate(_loader(paddle)):
        if step == WARM_UP_STEPS + RECORDED_STEPS:
            break
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        profiler.step()
    profiler.stop()
    report(f"recorded {RECORDED_STEPS} steps into {run_dir}")


def _model(paddle: Any) -> Any:
    nn = paddle.nn
    return nn.Sequential(
        nn.Conv2D(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Conv2D(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Linear(16 * (_SIDE // 4) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, _CLASSES),
    )


def _loader(paddle: Any) -> Any:
    random = np.random.RandomState(_SEED)
    images = random.rand(SAMPLES, 1, _SIDE, _SIDE).astype(np.float32)
    labels = random.randint(0, _CLASSES, SAMPLES).astype(np.int64)

    class Images(paddle.io.Dataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            return images[index], labels[index]

        def __len__(self) -> int:
            return SAMPLES

    return paddle.io.DataLoader(Images(), batch_size=BATCH, shuffle=False, num_workers=0)
