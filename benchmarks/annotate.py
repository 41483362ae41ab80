"""Measure how much ``annotate`` slows down training: the step time of an annotated model, divided by the step time
without annotation.

    python benchmarks/annotate.py [torch|paddle] [ROUNDS]

The ratio is measured twice. Without a profiler, it should be 1, because no hooks are installed. The other ratio is
measured while a profiler records. Runs with and without annotation alternate, and the numbers are medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LAYERS, WIDTH, STEPS = 60, 32, 20
"""Many small layers. The smaller a layer, the larger is the share of its label in the time of a call."""


def torch_step() -> tuple[Any, Callable[[], None]]:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    batch = torch.randn(8, WIDTH)
    return model, lambda: model(batch).sum().backward()


def paddle_step() -> tuple[Any, Callable[[], None]]:
    import paddle
    from paddle import nn

    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    batch = paddle.randn([8, WIDTH])
    return model, lambda: model(batch).sum().backward()


@contextmanager
def torch_profiler() -> Iterator[None]:
    import torch

    with torch.profiler.profile():
        yield


@contextmanager
def paddle_profiler() -> Iterator[None]:
    from paddle import profiler

    running = profiler.Profiler(on_trace_ready=lambda _: None)
    running.start()
    yield
    running.stop()


@contextmanager
def no_profiler() -> Iterator[None]:
    yield


def step_ns(step: Callable[[], None], profiler: Callable[[], Any]) -> float:
    """Return the median step time of one round in ns."""
    with profiler():
        step()
        times = []
        for _ in range(STEPS):
            start = time.perf_counter_ns()
            step()
            times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def ratio(framework: Any, make: Any, profiler: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Return the median ratio annotated ÷ plain step time, and the plain step time in µs."""
    model, step = make()
    plain, annotated = [], []
    for number in range(2 * rounds):
        if (number + number // 2) % 2:
            with framework.annotate(model):
                annotated.append(step_ns(step, profiler))
        else:
            plain.append(step_ns(step, profiler))
    each = [one / other for one, other in zip(annotated, plain, strict=True)]
    return statistics.median(each), statistics.median(plain) / 1e3


def main(wanted: str | None, rounds: int) -> None:
    import perfkit_paddle
    import perfkit_torch

    for name, framework, make, profiler in (
        ("torch", perfkit_torch, torch_step, torch_profiler),
        ("paddle", perfkit_paddle, paddle_step, paddle_profiler),
    ):
        if wanted not in (None, name):
            continue
        for what, context in (("without a profiler", no_profiler), ("while a profiler records", profiler)):
            found, plain_us = ratio(framework, make, context, rounds)
            print(f"{name}, {what}: annotated ÷ plain = {found:.3f} (plain step {plain_us:.0f} µs, {LAYERS} layers)")


if __name__ == "__main__":
    framework_name = sys.argv[1] if len(sys.argv) > 1 else None
    main(framework_name, int(sys.argv[2]) if len(sys.argv) > 2 else 15)
