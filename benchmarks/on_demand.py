"""Measure what a handler that records on demand costs while nobody asks: a step with it ÷ a step without it.

    python benchmarks/on_demand.py [torch|paddle] [ROUNDS]

Blocks of steps alternate: without a profiler, with an idle handler, and once more without a profiler. The ratio of the
two blocks without a profiler is 1 but for noise of the machine. Times are CPU times of the process, in which waits for
other programs do not count. The numbers are medians over the rounds.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIZES = ((60, 32, 8), (30, 256, 64))
"""Layers, width and batch of the models. Their steps take about 1 ms and 10 ms."""
BLOCK_S = 0.1
KINDS = ("plain", "idle", "plain again")


def torch_step(layers: int, width: int, rows: int) -> Callable[[], None]:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model, batch = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))), torch.randn(rows, width)
    return lambda: model(batch).sum().backward()


def paddle_step(layers: int, width: int, rows: int) -> Callable[[], None]:
    import paddle
    from paddle import nn

    model, batch = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))), paddle.randn([rows, width])
    return lambda: model(batch).sum().backward()


@contextmanager
def torch_profiler(folder: str) -> Iterator[Callable[[], None]]:
    import torch

    import perfkit.torch

    handler = perfkit.torch.trace_handler(folder, on_demand=True)
    schedule = perfkit.torch.schedule(on_demand=handler)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        yield profiler.step


@contextmanager
def paddle_profiler(folder: str) -> Iterator[Callable[[], None]]:
    from paddle import profiler

    import perfkit.paddle

    handler = perfkit.paddle.trace_handler(folder, on_demand=True)
    scheduler = perfkit.paddle.make_scheduler(on_demand=handler)
    with profiler.Profiler(scheduler=scheduler, on_trace_ready=handler) as running:
        yield running.step


@contextmanager
def no_profiler() -> Iterator[Callable[[], None]]:
    yield lambda: None


def block_ns(step: Callable[[], None], profiler: Any, steps: int) -> float:
    """Return the mean CPU time of the steps of a block in ns."""
    with profiler as ended:
        step()
        ended()
        start = time.process_time_ns()
        for _ in range(steps):
            step()
            ended()
        return (time.process_time_ns() - start) / steps


def measure(step: Callable[[], None], profiler: Callable[[], Any], rounds: int) -> dict[str, list[float]]:
    """Return the CPU times of a step in ns, for each kind of block. The kinds take turns, each first in some rounds."""
    steps = max(10, int(BLOCK_S * 1e9 / block_ns(step, no_profiler(), 50)))
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in (*KINDS[number % 3 :], *KINDS[: number % 3]):
            times[kind].append(block_ns(step, profiler() if kind == "idle" else no_profiler(), steps))
    return times


def main(wanted: str | None, rounds: int) -> None:
    warnings.simplefilter("ignore")
    for name, make, profiler in (
        ("torch", torch_step, torch_profiler),
        ("paddle", paddle_step, paddle_profiler),
    ):
        for size in SIZES if wanted in (None, name) else ():
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
                times = measure(make(*size), lambda open=profiler, at=folder: open(at), rounds)
            plain = times["plain"]
            ratios = {
                kind: statistics.median(one / base for one, base in zip(times[kind], plain, strict=True))
                for kind in KINDS[1:]
            }
            added = statistics.median(one - base for one, base in zip(times["idle"], plain, strict=True)) / 1e3
            print(
                f"{name}: idle ÷ plain = {ratios['idle']:.4f}, plain ÷ plain = {ratios['plain again']:.4f} "
                f"(a step of {statistics.median(plain) / 1e6:.2f} ms, {added:+.1f} µs, {rounds} rounds)"
            )


if __name__ == "__main__":
    framework_name = sys.argv[1] if len(sys.argv) > 1 else None
    main(framework_name, int(sys.argv[2]) if len(sys.argv) > 2 else 60)
