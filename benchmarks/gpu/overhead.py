"""What recording costs: the handler in training steps, and the handler on a million events."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import torch

import perfkit_torch
from benchmarks import live_torch_run
from benchmarks.gpu.programs import Classifier
from benchmarks.gpu.training import Place, Training, perceptron, supervised

STEPS, ACTIVE = 60, 20
"""Steps of a loop, and its recorded steps."""
PLAN = {"wait": 10, "warmup": 2, "active": ACTIVE, "repeat": 1}
WAYS = ("plain", "torch", "perfkit", "export")
"""No profiler; torch's profiler without a handler, with perfkit's handler, and with torch's export of its trace."""
Loop = tuple[AbstractContextManager[Any], Callable[[], None], Callable[[], None]]
"""The profiler, what ends a step, and what ends the loop."""


def small(place: Place) -> Training:
    width = place.size(256, 16)
    net = perceptron(width, place.size(24, 2)).to(place.device)
    return supervised(net, repeat((place.randn(64, width), place.labels(64, 10))))


def large(place: Place) -> Training:
    net = Classifier(place.size(768, 32), place.size(8, 1)).to(place.device)
    tokens = torch.randint(0, 1000, (32, place.size(256, 8)), device=place.device)
    return supervised(
        net, repeat((tokens, place.labels(32, 10))), autocast=torch.autocast(place.device, torch.bfloat16)
    )


def loop(way: str, folder: Path) -> Loop:
    """Return what a loop with this way of recording needs."""
    if way == "plain":
        return nullcontext(), lambda: None, lambda: None
    handler: Any = None
    schedule: Any = torch.profiler.schedule(**PLAN)
    if way == "perfkit":
        handler, schedule = perfkit_torch.trace_handler(folder), perfkit_torch.schedule(**PLAN)
    elif way == "export":

        def handler(profiler: Any) -> None:
            profiler.export_chrome_trace(str(folder / "trace.json"))

    profiler = torch.profiler.profile(schedule=schedule, on_trace_ready=handler, record_shapes=True)
    return profiler, profiler.step, handler.flush if way == "perfkit" else lambda: None


def measure_steps(place: Place, folder: Path) -> dict[str, Any]:
    """Run loops of both models in all ways by turns. Times of steps are host times without a synchronisation; the time
    of a loop ends after one, and with the profiler's own end."""
    loops = []
    for model in (small, large):
        training = model(place)
        for number in range(place.size(2, 1)):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                loops.append({"model": model.__name__, "round": number, "way": way, **_timed(training, place, way)})
    return {"steps": ACTIVE, "loops": loops}


def _timed(training: Training, place: Place, way: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        profiler, ended, finished = loop(way, Path(folder))
        for _ in range(5):
            next(training)
        place.module.synchronize()
        ends = [time.perf_counter_ns()]
        with profiler:
            for _ in range(STEPS):
                next(training)
                ended()
                ends.append(time.perf_counter_ns())
            place.module.synchronize()
        loop_ns = time.perf_counter_ns() - ends[0]
        finished()
        all_ns = time.perf_counter_ns() - ends[0]
    return {"step_ns": [after - before for before, after in pairwise(ends)], "loop_ns": loop_ns, "all_ns": all_ns}


def measure_million(way: str, place: Place, folder: Path) -> dict[str, Any]:
    """Measure the handler, or torch's export, on about a million events."""
    found = live_torch_run.measure(live_torch_run.BY_NAME[way], place.size(1_000_000, 20_000), place.device)
    return {("seconds_all" if key == "seconds" else key): value for key, value in found.items()}
