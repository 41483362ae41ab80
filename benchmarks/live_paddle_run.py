"""Measure one recorded Paddle training: ``python -m benchmarks.live_paddle_run WAY EVENTS [memory]``.

The program trains a small model on the CPU until Paddle's profiler has recorded about EVENTS events. It then does the
work of a user's ``on_trace_ready`` and prints one line of JSON:

- ``seconds``: time until the result exists.
- ``held_seconds``: time until training can continue.
- ``cpu_seconds``: CPU time.
- ``peak_bytes``: peak memory on top of the memory before the callback.

With the way ``parts``, it prints the CPU seconds of each part of perfkit's handler.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks import process

Way = Callable[[Any, Path], Callable[[], object]]
"""A function of the profiler and a folder. It returns a function that waits until the result exists."""

_EVENTS_A_STEP: Final = {False: 312, True: 410}
"""Events per step, without and with memory events."""


def perfkit(profiler: Any, folder: Path) -> Callable[[], object]:
    """Write a run folder with perfkit's handler."""
    from perfkit_paddle import trace_handler

    handler = trace_handler(folder)
    handler(profiler)
    return handler.flush


def summary(profiler: Any, folder: Path) -> Callable[[], object]:
    """Print Paddle's own tables, as in Paddle's documentation."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        profiler.summary()
    (folder / "summary.txt").write_text(printed.getvalue(), encoding="utf-8")
    return lambda: None


def export_chrome_tracing(profiler: Any, folder: Path) -> Callable[[], object]:
    """Write Paddle's own JSON file. The file is not read afterwards."""
    profiler.export(str(folder / "trace.json"), format="json")
    return lambda: None


BY_NAME: Final[dict[str, Way]] = {way.__name__: way for way in (perfkit, summary, export_chrome_tracing)}


def profiled(steps: int, memory: bool) -> Any:
    """Return a stopped profiler with this number of steps. If ``memory`` is set, it recorded memory events too."""
    import paddle
    from paddle import nn

    paddle.seed(0)
    net = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(16, 16), nn.ReLU())])
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    batch = paddle.rand([8, 16])
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU],
        profile_memory=memory,
        on_trace_ready=lambda _: None,  # Paddle's default handler writes a JSON file into the working directory
    )
    profiler.start()
    for step in range(steps):
        net(batch).mean().backward()
        optimizer.step()
        optimizer.clear_grad()
        if step < steps - 1:
            profiler.step()
    with contextlib.redirect_stdout(io.StringIO()):
        profiler.stop()
    return profiler


def measure(way: Way, events: int, memory: bool) -> dict[str, float]:
    """Return the numbers to print. A small recording comes first, so that imports are not measured."""
    with tempfile.TemporaryDirectory() as folder:
        way(profiled(2, memory), Path(folder))()
    with tempfile.TemporaryDirectory() as folder:
        profiler = _recorded(events, memory)
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
        "events": _count(profiler),
    }


def parts(events: int, memory: bool) -> dict[str, float]:
    """Return the CPU seconds of each part of perfkit's handler. A small recording comes first and is not measured."""
    _parts(profiled(2, memory))
    return _parts(_recorded(events, memory))


def _recorded(events: int, memory: bool) -> Any:
    return profiled(max(events // _EVENTS_A_STEP[memory], 1), memory)


def _parts(profiler: Any) -> dict[str, float]:
    from perfkit_core.trace.storage.store import write_trace
    from perfkit_paddle.on_trace_ready import saved
    from perfkit_paddle.pb_rows import rows
    from perfkit_paddle.pb_source import finish
    from perfkit_paddle.pb_wire import scan

    spent: dict[str, float] = {}

    def timed(name: str, action: Callable[[], Any]) -> Any:
        before = process.cpu_seconds()
        found = action()
        spent[name] = process.cpu_seconds() - before
        return found

    content = timed("save", lambda: saved(profiler.profiler_result))
    scanned = timed("scan", lambda: scan(content))
    found = timed("columns", lambda: rows(scanned.tables))
    trace = timed("assemble", lambda: finish(scanned.tables, found, "live"))
    with tempfile.TemporaryDirectory() as folder:
        timed("store", lambda: write_trace(trace, Path(folder) / "cycle.parquet"))
    return {**spent, "events": len(trace)}


def _count(profiler: Any) -> int:
    """Return the number of events of the recording, according to perfkit's reader."""
    from perfkit_paddle.on_trace_ready import saved
    from perfkit_paddle.pb_wire import scan

    tables = scan(saved(profiler.profiler_result)).tables
    return sum(len(tables[name]) for name in ("host", "runtime", "device", "memory"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ["GLOG_minloglevel"] = "1"  # noqa: SIM112 - as Paddle spells it
    wanted, size, with_memory = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["memory"]
    found = parts(size, with_memory) if wanted == "parts" else measure(BY_NAME[wanted], size, with_memory)
    print(json.dumps(found))
