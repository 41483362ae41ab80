"""Measure what a handler that records on demand costs while nobody asks: a step with it ÷ a step without it.

    python benchmarks/on_demand.py [torch|paddle] [STEPS]

Every second step calls the profiler's ``step()``, which looks for requests and times the step, and every fourth step
calls nothing twice. So the steps with the handler, without it, and once more without it take turns. The ratio of the
last two is 1 but for noise of the machine. A process with an idle profiler computes as one without, because nothing is
recorded. Times are CPU times of the process, in which waits for other programs do not count. Of each kind, the time
that a tenth of the steps does not exceed is compared, because other programs only make steps longer.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIZES = ((60, 32, 8), (30, 256, 64))
"""Layers, width and batch of the models. Their steps take about 1 ms and 5 ms on an idle core."""
KINDS = ("plain", "idle", "plain again", "idle")


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


def measure(step: Callable[[], None], ended: Callable[[], None], steps: int) -> dict[str, float]:
    """Return the CPU time of a step in ns for each kind."""
    times: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for number in range(steps + 20):
        kind = KINDS[number % len(KINDS)]
        start = time.process_time_ns()
        step()
        if kind == "idle":
            ended()
        taken = time.process_time_ns() - start
        if number >= 20:  # the first steps are longer
            times[kind].append(taken)
    return {kind: sorted(values)[len(values) // 10] for kind, values in times.items()}


def main(wanted: str | None, steps: int) -> None:
    warnings.simplefilter("ignore")
    for name, make, profiler in (
        ("torch", torch_step, torch_profiler),
        ("paddle", paddle_step, paddle_profiler),
    ):
        for size in SIZES if wanted in (None, name) else ():
            with (
                tempfile.TemporaryDirectory() as folder,
                contextlib.redirect_stdout(sys.stderr),
                profiler(folder) as ended,
            ):
                times = measure(make(*size), ended, steps)
            plain = times["plain"]
            print(
                f"{name}: idle ÷ plain = {times['idle'] / plain:.4f}, "
                f"plain ÷ plain = {times['plain again'] / plain:.4f} "
                f"(a step of {plain / 1e6:.2f} ms, {(times['idle'] - plain) / 1e3:+.1f} µs, {steps} steps)",
                flush=True,
            )


if __name__ == "__main__":
    framework_name = sys.argv[1] if len(sys.argv) > 1 else None
    main(framework_name, int(sys.argv[2]) if len(sys.argv) > 2 else 4000)
