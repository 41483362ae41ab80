"""``trace_handler``, the ``on_trace_ready`` callback for ``paddle.profiler.Profiler``. Paddle saves a finished cycle as
a protobuf, in memory if possible, and perfkit reads the protobuf. If Paddle cannot save the cycle, perfkit reads the
profiler's tree of Python objects."""

from __future__ import annotations

import importlib
import logging
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit_core.base.system import failures
from perfkit_core.base.system.outside_text import whole_number
from perfkit_core.errors import CaptureError
from perfkit_core.recording import annotation, environment, writer
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import findings, framework, pb_source, pb_table, pb_wire, program_operators, timed_schedule
from perfkit_paddle.pb_rows import Rows, rows

SOURCE: Final = "paddle.profiler"
_OPTIONS: Final = ("record_shapes", "profile_memory", "with_flops")
_LAUNCHER: Final = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM")


def trace_handler(
    run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = (), on_demand: bool = False
) -> writer.CycleWriter[Any]:
    """Return a callback that writes each recorded cycle into ``run_dir``, one Parquet file per cycle and process.

    The handler then calls the callbacks in ``also`` with the profiler. It never raises; it logs errors to the logger
    ``perfkit`` and marks the run as incomplete. The training waits while Paddle saves the cycle, for 1 to 1.5 µs per
    event. Then a thread writes the cycle while the training continues. ``flush()`` waits until all cycles are written.

    For each cycle, Paddle logs a line to stderr. To avoid it, set the environment variable ``GLOG_minloglevel`` to 1
    before paddle is imported.

    With ``on_demand=True``, a window of steps is recorded when ``perfkit capture`` or SIGUSR2 asks for it. The Profiler
    then needs ``scheduler=perfkit.paddle.make_scheduler(on_demand=handler)``. Raises CaptureError if Paddle is not
    installed."""
    watch_timers()
    profiling = framework.profiler()
    recording = profiling.utils.in_profiler_mode
    return writer.trace_handler(run_dir, take, also, job_rank, on_demand, profiling.Profiler, recording)


def watch_timers() -> None:
    """Warn when a Profiler with ``timer_only`` starts that has perfkit's handler, because it never calls the handler.
    Paddle calls the hooks of its timer when any Profiler starts. Raises CaptureError if Paddle cannot be imported."""
    framework.profiler()
    timer = importlib.import_module("paddle.profiler.timer")

    class StartHook(timer.Hook):  # type: ignore[name-defined,misc]
        def begin(self, benchmark: Any) -> None:
            profiler = sys._getframe(2).f_locals.get("self")
            handler = getattr(profiler, "on_trace_ready", None)
            if isinstance(handler, writer.CycleWriter) and getattr(profiler, "timer_only", False):
                handler.never_called("timer_only=True measures times only: leave it out to record events")

    timer.benchmark().hooks.setdefault("perfkit_timer_only", StartHook())


def take(
    profiler: Any, job_rank: environment.ProcessRank, no_steps: frozenset[int] = frozenset()
) -> writer.DetachedCycle:
    """Take the cycle that a profiler has just finished. The steps with the numbers in ``no_steps`` are not complete
    iterations, so they are not stored as steps. Raises CaptureError if there is no cycle."""
    result = getattr(profiler, "profiler_result", None)
    if result is None:
        raise CaptureError("the profiler has recorded nothing", "timer_only=True records no events")
    from perfkit_paddle.layers import FRAMEWORK
    from perfkit_paddle.static_programs import RUNS

    threads = os.environ.get("OMP_NUM_THREADS", "")  # Paddle sets this variable if the user did not
    dtype = framework.paddle().get_default_dtype()
    options = {name: bool(getattr(profiler, name)) for name in _OPTIONS if hasattr(profiler, name)}
    live = pb_source.Live(
        job_rank.rank,
        no_steps,
        {"framework_version": framework.paddle().__version__, "options": options},
        {**annotation.extra(FRAMEWORK), **environment.host(whole_number(threads), dtype)},
    )
    running, runs = getattr(profiler, "step_num", None), RUNS.drain()

    def finished(tables: dict[str, pb_table.Table], events: Rows) -> Trace:
        quality: tuple[Finding, ...] = ()
        try:
            recorded, quality = program_operators.described(events.recorded, runs)
            events = replace(events, recorded=recorded)
        except Exception:  # the cycle is complete without the arguments
            failures.logger.exception("perfkit: the operators of a static program could not be described")
        return pb_source.finish(tables, events, SOURCE, live=live).with_findings(*quality)

    def with_partial_step(trace: Trace) -> Trace:
        """Report the last step as partial if stop() ended it instead of step()."""
        steps = trace.ints("step")[trace.rows("kind", "step")]
        if running is None or not len(steps) or int(steps.max()) != running:
            return trace
        return trace.with_findings(findings.partial_step(int(running), stepped=running > 0))

    try:
        content = saved(result)
    except Exception as error:
        trace = finished(*_from_tree(result, error)).with_findings(findings.save_failed(str(error)))
        return writer.DetachedCycle(lambda: trace, clock=timed_schedule.clock(profiler)).then(with_partial_step)

    def decoded() -> Trace:
        try:
            scanned, events = pb_source.read_rows(content, SOURCE)
        except Exception as error:
            return finished(*_from_tree(result, error)).with_findings(findings.save_failed(str(error)))
        return finished(scanned.tables, events)

    return writer.DetachedCycle(decoded, clock=timed_schedule.clock(profiler)).then(with_partial_step)


def saved(result: Any) -> memoryview:
    """Return the bytes that ``result.save`` writes, or no bytes if it fails. Saving holds the GIL for 1.2 µs per event.
    In a background thread it would block the training for the same time, but during a later step."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
            path = Path(folder) / "cycle.pb"
            result.save(str(path), "pb")
            return memoryview(path.read_bytes())
    descriptor = os.memfd_create("perfkit")
    try:
        result.save(f"/proc/self/fd/{descriptor}", "pb")
        if not os.fstat(descriptor).st_size:  # an empty file cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _from_tree(result: Any, error: Exception) -> tuple[dict[str, pb_table.Table], Rows]:
    """Return the events in Paddle's tree of Python objects. This takes 10 µs per event, the protobuf only 2 µs."""
    failures.tell(
        f"Paddle's protobuf data cannot be read ({error}): the events are read from Paddle's Python objects instead",
        logging.WARNING,
    )
    tables = walk(result.get_data(), result.get_extra_info())
    return tables, rows(tables)


def job_rank() -> environment.ProcessRank:
    """Return rank and world size from the environment variables of the launcher, which may be Paddle's or another."""
    return environment.environment_rank(_LAUNCHER)


_UINT64: Final = 1 << 64
_HOST: Final = {"pid": "process_id", "tid": "thread_id", "start_ns": "start_ns", "end_ns": "end_ns"}
_RUNTIME: Final = _HOST | {"correlation": "correlation_id"}
_DEVICE: Final = {
    "start_ns": "start_ns", "end_ns": "end_ns", "device": "device_id", "context": "context_id", "stream": "stream_id",
    "correlation": "correlation_id",
}  # fmt: skip
_KERNEL: Final = {
    **{f"{key}_{axis}": f"{key}_{axis}" for key in ("block", "grid") for axis in "xyz"},
    "static_shared": "shared_memory", "registers": "registers_per_thread",
}  # fmt: skip
_KERNEL_FLOATS: Final = ("blocks_per_sm", "warps_per_sm", "occupancy")
_MEMORY: Final = {
    "start_ns": "timestamp_ns", "address": "addr", "pid": "process_id", "tid": "thread_id", "bytes": "increase_bytes",
    "allocated": "current_allocated", "reserved": "current_reserved", "peak_allocated": "peak_allocated",
    "peak_reserved": "peak_reserved",
}  # fmt: skip


def walk(trees: Mapping[int, Any], extra_info: Mapping[str, str]) -> dict[str, pb_table.Table]:
    """Convert Paddle's tree of Python objects to the tables that a scan of the protobuf returns."""
    tables = _Tables()
    for thread, root in trees.items():
        owner = tables.add("thread", 0, thread_id=thread)
        for number, (node, parent) in enumerate(breadth_first(root)):
            cells = _read(node, _HOST) | tables.text("name", node.name)
            row = tables.add("host", owner, id=number, parent_id=parent, type=int(node.type), **cells)
            for memory in node.mem_node:
                where = tables.text("place", memory.place)
                tables.add("memory", row, type=int(memory.type), **_read(memory, _MEMORY), **where)
            for call in node.runtime_node:
                called = tables.add("runtime", row, **_read(call, _RUNTIME), **tables.text("name", call.name))
                for work in call.device_node:
                    tables.add("device", called, **_device_cells(work), **tables.text("name", work.name))
    for key, value in extra_info.items():
        tables.add("extra", 0, **tables.text("key", key), **tables.text("value", value))
    tables.add("file", 0)
    return tables.finished()


def breadth_first(root: Any) -> Iterator[tuple[Any, int]]:
    """Yield each node and the number of its parent, or -1 for the root. The nodes are numbered as they are yielded."""
    level, parents, count = [root], [-1], 0
    while level:
        below, below_parents = [], []
        for node, parent in zip(level, parents, strict=True):
            yield node, parent
            children = node.children_node
            below += children
            below_parents += [count] * len(children)
            count += 1
        level, parents = below, below_parents


def _device_cells(node: Any) -> dict[str, int]:
    cells = _read(node, _DEVICE) | {"type": int(node.type)}
    kind = getattr(node.type, "name", "")
    if kind == "Kernel":
        cells |= _read(node, _KERNEL) | {"dynamic_shared": 0}
        cells |= {column: int(np.float32(getattr(node, column)).view(np.int32)) for column in _KERNEL_FLOATS}
    else:
        cells["bytes"] = node.num_bytes
    if kind == "Memset":
        cells["value"] = node.value
    return cells


def _read(node: Any, attributes: Mapping[str, str]) -> dict[str, int]:
    return {column: getattr(node, attribute) for column, attribute in attributes.items()}


class _Tables:
    """Builder of tables. Equal texts are stored once."""

    def __init__(self) -> None:
        plan = pb_wire.layout()
        self._columns = dict(zip(plan.tables, plan.columns, strict=True))
        self._rows: dict[str, list[list[int]]] = {name: [] for name in plan.tables}
        self._texts = bytearray()
        self._places: dict[str, tuple[int, int]] = {}

    def text(self, column: str, value: str) -> dict[str, int]:
        if value not in self._places:
            raw = value.encode("utf-8", "replace")
            self._places[value] = len(self._texts), len(raw)
            self._texts += raw
        offset, length = self._places[value]
        return {column: offset, f"{column}.length": length}

    def add(self, table: str, owner: int, **cells: int) -> int:
        """Add a row and return its number. Integers of 2⁶³ or more become negative, as in tables of the protobuf."""
        cells[pb_table.OWNER] = owner
        values = [cells.get(column, pb_table.MISSING) for column in self._columns[table]]
        self._rows[table].append([value - _UINT64 if value >= 1 << 63 else value for value in values])
        return len(self._rows[table]) - 1

    def finished(self) -> dict[str, pb_table.Table]:
        data = np.frombuffer(bytes(self._texts), np.uint8)
        tables = {}
        for name, values in self._rows.items():
            cells = np.array(values, np.int64).reshape(-1, len(self._columns[name])).T
            tables[name] = pb_table.Table(data, np.ascontiguousarray(cells), self._columns[name])
        return tables
