"""Functions for all pairs: run the steps, print the mean step time, and optionally record some steps.

python loader_before.py --steps 60                  prints: step_ms: 25.31
python loader_before.py --steps 60 --record runs/x  records steps 10 to 29 as well
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import chain, islice, pairwise, repeat
from typing import Any

import paddle

from perfkit.paddle import make_scheduler, trace_handler

WARMUP, RECORDED = 10, 20


def measured(batches: Iterable[Any], train: Callable[[Any], None]) -> None:
    """Train for the number of steps that the command line gives. The batches repeat if there are fewer batches than
    steps."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--record", metavar="DIR")
    options = asked.parse_args()
    endless = islice(chain.from_iterable(repeat(batches)), max(options.steps, WARMUP + 1))
    ends = [time.perf_counter_ns()]
    if options.record is None:
        for batch in endless:
            train(batch)
            ends.append(time.perf_counter_ns())
    else:
        _recorded(endless, train, options.record, ends)
    steps = [after - before for before, after in pairwise(ends)]
    print(f"step_ms: {statistics.mean(steps[WARMUP:]) / 1e6:.3f}")


def _recorded(batches: Iterable[Any], train: Callable[[Any], None], run_dir: str, ends: list[int]) -> None:
    handler = trace_handler(run_dir)
    plan = make_scheduler(closed=WARMUP - 1, ready=1, record=RECORDED, repeat=1)
    with paddle.profiler.Profiler(scheduler=plan, on_trace_ready=handler) as profiler:
        for batch in batches:
            train(batch)
            profiler.step()
            ends.append(time.perf_counter_ns())
    handler.flush()
