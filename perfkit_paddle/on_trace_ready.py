"""``trace_handler``, the ``on_trace_ready`` callback for ``paddle.profiler.Profiler``. Paddle saves a finished cycle as
a protobuf, in memory if possible, and perfkit reads the protobuf. If Paddle cannot save the cycle, perfkit makes the
protobuf of the profiler's tree of Python objects."""

from __future__ import annotations

import functools
import importlib
import logging
import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.system import failures
from perfkit_core.base.system.outside_text import whole_number
from perfkit_core.errors import CaptureError
from perfkit_core.recording import annotation, environment, writer
from perfkit_core.recording.step_clock import clock_of
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle import findings, framework, pb_source, pb_wire, program_operators

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

    def with_partial_step(trace: Trace) -> Trace:
        """Report the last step as partial if stop() ended it instead of step()."""
        steps = trace.ints("step")[trace.rows("kind", "step")]
        if running is None or not len(steps) or int(steps.max()) != running:
            return trace
        return trace.with_findings(findings.partial_step(int(running), stepped=running > 0))

    quality: tuple[Finding, ...] = ()
    try:
        content: bytes | memoryview = saved(result)
    except Exception as error:
        content, quality = _from_tree(result, error)

    def decoded() -> Trace:
        failed = quality
        try:
            scanned, events = pb_source.read_rows(content, SOURCE)
        except Exception as error:
            of_tree, failed = _from_tree(result, error)
            scanned, events = pb_source.read_rows(of_tree, SOURCE)
        try:
            recorded, described = program_operators.described(events.recorded, runs)
            events, failed = replace(events, recorded=recorded), (*described, *failed)
        except Exception:  # the cycle is complete without the arguments
            failures.logger.exception("perfkit: the operators of a static program could not be described")
        return pb_source.finish(scanned.tables, events, SOURCE, live=live).with_findings(*failed)

    return writer.DetachedCycle(decoded, clock=clock_of(getattr(profiler, "scheduler", None))).then(with_partial_step)


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


def _from_tree(result: Any, error: Exception) -> tuple[bytes, tuple[Finding, ...]]:
    """Return the protobuf of Paddle's tree of Python objects, and a finding with the reason. This takes about 15 µs
    per event, saving only 1.2 µs."""
    failures.tell(
        f"Paddle's protobuf data cannot be read ({error}): the events are read from Paddle's Python objects instead",
        logging.WARNING,
    )
    return tree_content(result.get_data(), result.get_extra_info()), (findings.save_failed(str(error)),)


def job_rank() -> environment.ProcessRank:
    """Return rank and world size from the environment variables of the launcher, which may be Paddle's or another."""
    return environment.environment_rank(_LAUNCHER)


_HOST: Final = {"name": "name", "pid": "process_id", "tid": "thread_id", "start_ns": "start_ns", "end_ns": "end_ns"}
_RUNTIME: Final = _HOST | {"correlation": "correlation_id"}
_DEVICE: Final = {
    "name": "name", "start_ns": "start_ns", "end_ns": "end_ns", "device": "device_id", "context": "context_id",
    "stream": "stream_id", "correlation": "correlation_id",
}  # fmt: skip
_KERNEL: Final = {
    **{name: name for key in ("block", "grid") for axis in "xyz" for name in (f"{key}_{axis}",)},
    **{name: name for name in ("blocks_per_sm", "warps_per_sm", "occupancy")},
    "static_shared": "shared_memory", "registers": "registers_per_thread",
}  # fmt: skip
_MEMORY: Final = {
    "start_ns": "timestamp_ns", "address": "addr", "pid": "process_id", "tid": "thread_id", "bytes": "increase_bytes",
    "place": "place", "allocated": "current_allocated", "reserved": "current_reserved",
    "peak_allocated": "peak_allocated", "peak_reserved": "peak_reserved",
}  # fmt: skip


def tree_content(trees: Mapping[int, Any], extra_info: Mapping[str, str]) -> bytes:
    """Return the protobuf of Paddle's tree of Python objects. Unlike the protobuf that Paddle writes, it lacks copy
    kinds and the inputs of operators."""
    threads = [
        {
            "thread_id": thread,
            "host": (_host_node(node, number, parent) for number, (node, parent) in enumerate(breadth_first(root))),
        }
        for thread, root in trees.items()
    ]
    extra = [{"key": key, "value": value} for key, value in extra_info.items()]
    return _encoded("file", {"thread": threads, "extra": extra})


def _host_node(node: Any, number: int, parent: int) -> dict[str, Any]:
    calls = [
        {"runtime_event": [_read(call, _RUNTIME)], "device_node": [_device_node(work) for work in call.device_node]}
        for call in node.runtime_node
    ]
    memory = [{"memory_event": [_read(event, _MEMORY) | {"type": int(event.type)}]} for event in node.mem_node]
    event = _read(node, _HOST) | {"type": int(node.type)}
    return {"id": number, "parent_id": parent, "host_event": [event], "runtime": calls, "memory_node": memory}


def _device_node(node: Any) -> dict[str, Any]:
    event = _read(node, _DEVICE) | {"type": int(node.type)}
    kind = getattr(node.type, "name", "")
    if kind == "Kernel":
        event["kernel"] = [_read(node, _KERNEL) | {"dynamic_shared": 0}]
    elif kind == "Memset":
        event["set"] = [{"bytes": node.num_bytes, "value": node.value}]
    else:
        event["copy"] = [{"bytes": node.num_bytes}]
    return {"device_event": [event]}


def _read(node: Any, attributes: Mapping[str, str]) -> dict[str, Any]:
    return {field: getattr(node, attribute) for field, attribute in attributes.items()}


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


def _encoded(message: str, fields: Mapping[str, Any]) -> bytes:
    """Return a message of the schema as protobuf. ``fields`` maps names of fields to integers, texts and floats, and
    names of messages to the fields of each of these messages. A missing field is left out."""
    content = bytearray()
    for name, action, tag in _encoding(message):
        if name not in fields:
            continue
        value = fields[name]
        if action == pb_wire.INTEGER:
            content += tag + pb_wire.varint(value if value >= 0 else value + (1 << 64))
        elif action == pb_wire.FLOAT:
            content += tag + struct.pack("<f", value)
        else:
            for part in (
                (value.encode("utf-8", "replace"),) if action == pb_wire.TEXT else (_encoded(name, f) for f in value)
            ):
                content += tag + pb_wire.varint(len(part)) + part
    return bytes(content)


@functools.cache
def _encoding(message: str) -> tuple[tuple[str, int, bytes], ...]:
    """Return name, action and tag of the fields of a message."""
    actions = {
        "": (pb_wire.INTEGER, 0),
        "text": (pb_wire.TEXT, 2),
        "float": (pb_wire.FLOAT, 5),
        ">": (pb_wire.MESSAGE, 2),
    }
    fields = []
    for number, field in enumerate(pb_wire.MESSAGES[message].fields, 1):
        name, _, kind = field.partition(":")
        action, wire = actions[">" if name.startswith(">") else kind]
        fields.append((name.removeprefix(">"), action, pb_wire.varint(number << 3 | wire)))
    return tuple(fields)
