"""A recorded Paddle training out of its profiler: ``python -m benchmarks.live_paddle_run WAY EVENTS [memory]``.

Trains a small model on the CPU, as Paddle's profiler records it without options or with ``profile_memory``, until
about EVENTS events are recorded; then does what a user's ``on_trace_ready`` does, and prints one line of JSON:
``seconds`` until the result is there, ``held_seconds`` until the training may go on, ``cpu_seconds``, and
``peak_bytes``, the most memory on top of that before the callback. The way ``parts`` prints the CPU seconds of each
part of our own way instead.
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
"""What a callback does with the profiler and a folder; what it returns waits until the result is there."""

_EVENTS_A_STEP: Final = {False: 312, True: 410}
"""Without and with memory."""


def perfkit(profiler: Any, folder: Path) -> Callable[[], object]:
    """Our handler: a run folder."""
    from perfkit_paddle import trace_handler

    handler = trace_handler(folder)
    handler(profiler)
    return handler.flush


def summary(profiler: Any, folder: Path) -> Callable[[], object]:
    """Paddle's own tables, as its documentation prints them."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        profiler.summary()
    (folder / "summary.txt").write_text(printed.getvalue(), encoding="utf-8")
    return lambda: None


def export_chrome_tracing(profiler: Any, folder: Path) -> Callable[[], object]:
    """Paddle's own JSON, which nothing has read yet."""
    profiler.export(str(folder / "trace.json"), format="json")
    return lambda: None


BY_NAME: Final[dict[str, Way]] = {way.__name__: way for way in (perfkit, summary, export_chrome_tracing)}


def profiled(steps: int, memory: bool) -> Any:
    """A stopped profiler that has recorded so many steps, with ``memory`` memory events among them."""
    import paddle
    from paddle import nn

    paddle.seed(0)
    net = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(16, 16), nn.ReLU())])
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    batch = paddle.rand([8, 16])
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU],
        profile_memory=memory,
        on_trace_ready=lambda _: None,  # its own one writes a JSON file into the working directory
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
    """The numbers of the module's docstring. A small recording goes first: what is compiled or imported late is there
    by then, as it is from the second cycle on."""
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
    """CPU seconds of the parts of our way, one after the other; the first, small recording is not counted."""
    _parts(profiled(2, memory))
    return _parts(_recorded(events, memory))


def _recorded(events: int, memory: bool) -> Any:
    return profiled(max(events // _EVENTS_A_STEP[memory], 1), memory)


def _parts(profiler: Any) -> dict[str, float]:
    from perfkit_core.storage.store import write_trace
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
    """Events of the recording, counted by our reader of what Paddle saves."""
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
