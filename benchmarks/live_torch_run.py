"""Measure one recorded torch training: ``python -m benchmarks.live_torch_run WAY EVENTS [DEVICE]``.

The program trains a small model, by default on the CPU, until torch's profiler has recorded about EVENTS events, with
shapes and memory. It then does the work of a user's ``on_trace_ready`` and prints one line of JSON:

- ``seconds``: time until the result exists.
- ``held_seconds``: time until training can continue.
- ``cpu_seconds``: CPU time.
- ``peak_bytes``: peak memory on top of the memory before the callback.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks import process

Way = Callable[[Any, Path], Callable[[], object]]
"""A function of the profiler and a folder. It returns a function that waits until the result exists."""


def perfkit(profiler: Any, folder: Path) -> Callable[[], object]:
    """Write a run folder with perfkit's handler."""
    from perfkit_torch import trace_handler

    handler = trace_handler(folder)
    handler(profiler)
    return handler.flush


def key_averages(profiler: Any, folder: Path) -> Callable[[], object]:
    """Print torch's own table, as in torch's documentation."""
    (folder / "table.txt").write_text(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    return lambda: None


def export_chrome_trace(profiler: Any, folder: Path) -> Callable[[], object]:
    """Write torch's own file. The file is not read afterwards."""
    profiler.export_chrome_trace(str(folder / "trace.json"))
    return lambda: None


BY_NAME: Final[dict[str, Way]] = {way.__name__: way for way in (perfkit, key_averages, export_chrome_trace)}


def profiled(steps: int, device: str = "cpu") -> Any:
    """Return a stopped profiler with this number of steps, shapes and memory."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    net = torch.nn.Sequential(layer, torch.nn.Linear(32, 8)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    batch = torch.randn(4, 12, 32, device=device)
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=steps + 1), record_shapes=True, profile_memory=True
    )
    with profiler:
        for _ in range(steps + 1):
            net(batch).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    return profiler


def measure(way: Way, events: int, device: str = "cpu") -> dict[str, float]:
    """Return the numbers to print. A small recording comes first, so that imports are not measured. It
    also shows how many events a step has."""
    with tempfile.TemporaryDirectory() as folder:
        profiler = profiled(2, device)
        steps = max(2 * events // recorded(profiler), 1)
        way(profiler, Path(folder))()
    with tempfile.TemporaryDirectory() as folder:
        profiler = profiled(steps, device)
        process.reset_peak()
        base, cpu, start = process.resident_bytes(), process.cpu_seconds(), time.perf_counter()
        wait = way(profiler, Path(folder))
        held = time.perf_counter() - start
        wait()
        seconds, used = time.perf_counter() - start, process.cpu_seconds() - cpu
        peak = process.peak_bytes() - base
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return {
        "seconds": seconds,
        "held_seconds": held,
        "cpu_seconds": used,
        "peak_bytes": peak,
        "result_bytes": size,
        "events": recorded(profiler),
        "steps": steps,
    }


def recorded(profiler: Any) -> int:
    return len(profiler.profiler.kineto_results.events())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps(measure(BY_NAME[sys.argv[1]], int(sys.argv[2]), *sys.argv[3:])))
