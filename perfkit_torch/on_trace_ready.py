"""``trace_handler``, the ``on_trace_ready`` callback for ``torch.profiler.profile``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfkit_core.base.language.messages import message
from perfkit_core.base.system import failures
from perfkit_core.readers.chrome.event_collector import EventCollector
from perfkit_core.readers.chrome.reader import event_findings
from perfkit_core.recording import annotation, environment, writer
from perfkit_core.recording.step_clock import StepClock, Utilisation, clock_of
from perfkit_core.trace.assembly.assemble import assemble
from perfkit_core.trace.assembly.kernel_calls import with_graphs
from perfkit_core.trace.assembly.steps import NO_STEPS
from perfkit_core.trace.model.meta import ALL_THREADS, Device, Finding, TraceMeta
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import compile_logs, dialect, framework, live_events, operator_names

if TYPE_CHECKING:
    import torch

BUSY_THREAD: Final = 0.05
"""Least CPU time of a busy thread, as a share of the time of the recorded steps. Threads that feed queues use less."""
_NAMED_THREADS: Final = 3
_WAITING_BATCHES: Final = 32
"""Largest number of batches that wait for the background thread: 262,144 events, of 450 bytes each. If there are more,
the calling thread makes columns of them, which take 100 bytes for an event."""
_PROPERTIES: Final = {
    "computeMajor": "major", "computeMinor": "minor", "numSms": "multi_processor_count", "warpSize": "warp_size",
    "maxThreadsPerMultiprocessor": "max_threads_per_multi_processor",
}  # fmt: skip
"""Key in ``Device.properties``, as in torch's trace files → attribute of the properties that torch returns."""


def trace_handler(
    run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = (), on_demand: bool = False
) -> writer.CycleWriter[torch.profiler.profile]:
    """Return a callback that writes each profiler cycle into ``run_dir``, one Parquet file per cycle and rank.

    The handler then calls the callbacks in ``also`` with the profiler. It never raises; it logs errors to the logger
    ``perfkit``. The training waits while the events are read. A thread then writes the cycle while the training
    continues. If the profiler records stacks (``with_stack``), the training also waits for the writing. ``flush()``
    waits for the thread.

    With ``on_demand=True``, a window of steps is recorded when ``perfkit capture`` or SIGUSR2 asks for it. The profiler
    then needs ``schedule=perfkit.torch.schedule(on_demand=handler)``. Raises CaptureError if torch is not installed."""
    torch = framework.torch()
    profiler, recording = torch.profiler.profile, torch.autograd._profiler_enabled
    return writer.trace_handler(run_dir, take, also, job_rank, on_demand, profiler, recording)


def take(profiler: Any, job_rank: environment.ProcessRank, clock: StepClock | None = None) -> writer.DetachedCycle:
    """Take the last cycle of the profiler. ``clock``: the clock of the training, by default that of its schedule.

    Read torch's objects in the calling thread: this holds the GIL, so another thread would block the training as well.
    A background thread makes columns of what was read, and assembles them, unless Python stacks are recorded: its
    stacks would be in the next cycle."""
    inner = getattr(profiler, "profiler", profiler)  # torch.autograd.profiler.profile has no inner profiler
    results = getattr(inner, "kineto_results", None)
    if results is None:
        raise RuntimeError("the profiler has no results: start and stop it first")
    clock = clock or clock_of(getattr(profiler, "schedule", None))
    with_flops, with_stack = (bool(getattr(profiler, option, False)) for option in ("with_flops", "with_stack"))
    batches = live_events.batches(results, with_flops, with_stack)
    if clock is not None and with_stack:  # torch also records the frames of the sampler
        batches = (batch.without_thread(clock.sampler) for batch in batches)
    waiting = [*islice(batches, _WAITING_BATCHES)][::-1]
    collector = EventCollector(dialect.TorchDialect())
    for batch in batches:
        read(_drained(waiting), collector)
        read((batch,), collector)
    torch = framework.torch()
    from perfkit_torch.layers import FRAMEWORK

    used = Utilisation() if clock is None else clock.utilisation
    host = environment.host(torch.get_num_threads(), str(torch.get_default_dtype()))
    meta = TraceMeta(
        source="live",
        format="perfkit-torch-live",
        framework="torch",
        framework_version=str(torch.__version__),
        devices=_devices(torch),
        options=_options(profiler),
        thread_names=_thread_names(job_rank.rank),
        cpu_utilisation=used.cpu,
        extra={**annotation.extra(FRAMEWORK), **host},
    )

    def finish() -> Trace:
        read(_drained(waiting), collector)
        quality = event_findings(collector)
        trace = assemble(collector.recorded(), meta, quality, job_rank.rank, operator_names.operator_name)
        try:
            return with_graphs(trace, compile_logs.in_process(trace.codes("name").values))
        except Exception:  # the cycle is complete without them
            failures.logger.exception("perfkit: the compiled graphs could not be read")
            return trace

    cycle = writer.DetachedCycle(finish, not getattr(profiler, "with_stack", False), clock)
    cycle = cycle.then(functools.partial(_unrecorded_threads, threads=used.threads))
    stepped = clock is None and bool(getattr(profiler, "step_num", 0))
    return cycle.then(_unscheduled) if stepped and not getattr(profiler, "record_steps", True) else cycle


def _options(profiler: Any) -> dict[str, Any]:
    options = {name: bool(getattr(profiler, name)) for name in dialect.OPTIONS if hasattr(profiler, name)}
    config: Any = getattr(profiler, "experimental_config", None)
    try:  # the options have no attributes, and their order in the state depends on torch's version
        off, on = (type(config)(profile_all_threads=value).__getstate__() for value in (False, True))
        at = next(number for number, value in enumerate(off) if value != on[number])
        return options | {ALL_THREADS: True} if config.__getstate__()[at] else options
    except (AttributeError, LookupError, StopIteration, TypeError):  # the version of torch has no such option
        return options


def _unscheduled(trace: Trace) -> Trace:
    """Say why the trace has no steps, although the training called ``step()``."""
    text = message(
        "the profiler has no schedule, so its step() marked no training steps: pass {argument}",
        argument="schedule=perfkit.torch.schedule(wait=16, warmup=2, active=20, repeat=1)",
    )
    quality = tuple(Finding(NO_STEPS, text) if finding.code == NO_STEPS else finding for finding in trace.quality)
    return replace(trace, quality=quality)


def _unrecorded_threads(trace: Trace, threads: Mapping[int, tuple[str, float]]) -> Trace:
    """Say which other Python threads were busy, but have no events: torch records one thread only, and the threads of
    its own backward pass."""
    recorded = set(np.unique(trace.ints("tid")).tolist())
    absent = [name for tid, (name, share) in threads.items() if tid not in recorded and share >= BUSY_THREAD]
    if not absent:
        return trace
    text = message(
        "Python threads were busy in the recorded steps, but have no events ({names}): if they run operators, record "
        "them with {argument}",
        names=", ".join(absent[:_NAMED_THREADS]) + (", …" if absent[_NAMED_THREADS:] else ""),
        argument="experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)",
    )
    return trace.with_findings(Finding("threads-not-recorded", text))


def _drained(waiting: list[live_events.LiveBatch]) -> Iterator[live_events.LiveBatch]:
    """Yield the batches, the last one first, and remove them from the list, so that their memory is freed early."""
    while waiting:
        yield waiting.pop()


def read(batches: Iterable[live_events.LiveBatch], collector: EventCollector | None = None) -> EventCollector:
    """Add the events of some batches to a collector, by default to a new one."""
    collector = collector or EventCollector(dialect.TorchDialect())
    for batch in batches:
        try:
            collector.add_text(batch.text(), batch.times)
        except ValueError:  # the metadata of some event is invalid JSON
            collector.add_text(batch.mended().text(), batch.times)
    return collector


def _devices(torch: Any) -> tuple[Device, ...]:
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # a query must not initialise CUDA
        return ()
    devices = []
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        extra = {key: getattr(properties, name) for key, name in _PROPERTIES.items() if hasattr(properties, name)}
        devices.append(Device(f"cuda:{i}", properties.name, int(properties.total_memory), extra))
    return tuple(devices)


def _thread_names(rank: int | None) -> dict[str, str]:
    names = {}
    for task in Path("/proc/self/task").glob("*"):
        try:
            names[f"{'-' if rank is None else rank}:{os.getpid()}:{task.name}"] = (task / "comm").read_text().strip()
        except OSError:  # the thread has ended
            continue
    return names


def job_rank() -> environment.ProcessRank:
    """Return rank and world size from torch.distributed if initialised, else from the launcher's environment."""
    distributed = framework.torch().distributed
    if distributed.is_available() and distributed.is_initialized():
        return environment.ProcessRank(distributed.get_rank(), distributed.get_world_size())
    return environment.environment_rank()
