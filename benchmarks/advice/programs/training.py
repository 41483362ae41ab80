"""Run a training program of the proving ground: time its steps, and optionally record some of them.

python torch/char_gpt.py                    the training as it was written; prints: step_ms: 25.31
python torch/char_gpt.py --fixed            the training with its fix
python torch/char_gpt.py --record runs/x    records some steps with the framework's profiler as well

A program is a generator function. Each ``yield`` ends a step. Steps begin where the previous step ends, so they include
the loading of data and everything else that the training does.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

WARMUP = 10
"""Steps that are not timed. Memory pools, caches and lazily compiled code fill in these steps."""
WAIT, RECORDED = 14, 20
"""Steps before and within the window of the profiler."""


def run(program: Callable[[bool], Iterator[None]], framework: str, steps: int = 60) -> None:
    """Run the program for a number of steps, and print the mean time of the steps after the first ``WARMUP`` steps. The
    program gets True if the command line asks for its fix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true", help="run the training with its fix")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--record", metavar="DIR", help="record some steps into this folder")
    options = parser.parse_args()
    ends = [time.perf_counter_ns()]
    training = program(options.fixed)
    if options.record is None:
        for _, _ in zip(range(options.steps), training, strict=False):
            ends.append(time.perf_counter_ns())
    else:
        profiler, handler = _PROFILERS[framework](options.record)
        with profiler:
            for _, _ in zip(range(options.steps), training, strict=False):
                profiler.step()
        handler.flush()
        return
    if len(ends) < options.steps + 1:
        raise SystemExit(f"the training ended after {len(ends) - 1} of {options.steps} steps")
    timed = [after - before for before, after in pairwise(ends)][WARMUP:]
    print(f"step_ms: {statistics.mean(timed) / 1e6:.4f}")


def _torch(folder: str) -> tuple[Any, Any]:
    import torch

    import perfkit_torch

    handler = perfkit_torch.trace_handler(folder)
    schedule = perfkit_torch.schedule(wait=WAIT, warmup=2, active=RECORDED, repeat=1)
    return torch.profiler.profile(schedule=schedule, on_trace_ready=handler, record_shapes=True), handler


def _paddle(folder: str) -> tuple[Any, Any]:
    import paddle

    import perfkit_paddle

    handler = perfkit_paddle.trace_handler(folder)
    schedule = perfkit_paddle.make_scheduler(closed=WAIT + 1, ready=1, record=RECORDED, repeat=1)
    return paddle.profiler.Profiler(scheduler=schedule, on_trace_ready=handler, record_shapes=True), handler


_PROFILERS = {"torch": _torch, "paddle": _paddle}
