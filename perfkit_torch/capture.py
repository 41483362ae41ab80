"""``trace_handler``: what a user passes to ``torch.profiler.profile(on_trace_ready=…)``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.assembly.assemble import assemble
from perfkit_core.model.meta import Device, TraceMeta
from perfkit_core.model.trace import Trace
from perfkit_core.readers.chrome.recorder import Recorder
from perfkit_core.recording.environment import Place, environment_place, host
from perfkit_core.recording.writer import CycleWriter, Taken
from perfkit_torch import kineto_events, trace_activities
from perfkit_torch.dialect import TorchDialect
from perfkit_torch.event_text import LiveBatch, record
from perfkit_torch.operator_names import operator_name

if TYPE_CHECKING:
    import torch

_OPTIONS: Final = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


def trace_handler(
    run_dir: str | os.PathLike[str], also: Iterable[Callable[[Any], Any]] = ()
) -> CycleWriter[torch.profiler.profile]:
    """Write each cycle of the profiler into ``run_dir``, one Parquet file a cycle and rank.

    ``also`` are further callbacks, called with the profiler after us. Neither ours nor their failures reach the
    training: they are logged under ``perfkit``. The training is held while the events are read; a thread does the rest
    while it goes on (not with ``with_stack``), and ``flush()`` waits for that.
    """
    return CycleWriter(run_dir, take, also, place, warn_uncalled=True)


def extract(profiler: Any, place: Place) -> Trace:
    """The profiler's last cycle as a Trace. Does not use up the one export that torch allows."""
    return take(profiler, place).finish()


def take(profiler: Any, place: Place) -> Taken:
    """The profiler's last cycle. Its events are read at once, which needs Python's lock as the training does; what
    follows hardly needs it. A profiler of Python stacks would record our thread in its next cycle."""
    held = [read(_batches(_kineto_results(profiler), bool(getattr(profiler, "with_flops", False))))]
    rank = place.rank
    names = {f"{'-' if rank is None else rank}:{key}": name for key, name in _thread_names().items()}
    meta = _meta(profiler, names)

    def finish() -> Trace:
        # popped and not named: what was recorded goes as soon as the Trace no longer needs it
        return assemble(held.pop().recorded(), meta, rank=rank, operator_names=operator_name)

    return Taken(finish, background=not getattr(profiler, "with_stack", False))


def read(batches: Iterable[LiveBatch]) -> Recorder:
    """A recorder that has taken all of the batches."""
    recorder = Recorder(TorchDialect())
    for batch in batches:
        record(recorder.add_text, batch)
    return recorder


def _kineto_results(profiler: Any) -> Any:
    """From ``torch.profiler.profile`` and from the older ``torch.autograd.profiler.profile``."""
    inner = getattr(profiler, "profiler", profiler)
    results = getattr(inner, "kineto_results", None)
    if results is None:
        raise RuntimeError("the profiler holds no results: was it started and stopped?")
    return results


def _batches(results: Any, with_flops: bool) -> Iterator[LiveBatch]:
    if trace_activities.available(results):
        return trace_activities.batches(results, with_flops)
    return kineto_events.batches(results)


def _meta(profiler: Any, thread_names: dict[str, str]) -> TraceMeta:
    import torch

    from perfkit_torch import layers

    return TraceMeta(
        source="live",
        format="perfkit-torch-live",
        framework="torch",
        framework_version=str(torch.__version__),
        devices=_devices(),
        options={name: bool(getattr(profiler, name)) for name in _OPTIONS if hasattr(profiler, name)},
        thread_names=thread_names,
        extra={**layers.extra(), **host(torch.get_num_threads())},
    )


def _devices() -> tuple[Device, ...]:
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # asking would start CUDA
        return ()
    return tuple(_device(torch.cuda.get_device_properties(i), i) for i in range(torch.cuda.device_count()))


def _device(properties: Any, index: int) -> Device:
    wanted = ("major", "minor", "multi_processor_count", "warp_size", "max_threads_per_multi_processor")
    kept = {name: getattr(properties, name) for name in wanted if hasattr(properties, name)}
    return Device(f"cuda:{index}", properties.name, int(properties.total_memory), kept)


def _thread_names() -> dict[str, str]:
    """Names of the threads alive now, by "pid:tid"; empty where the system has no /proc."""
    pid, names = os.getpid(), {}
    for task in Path("/proc/self/task").glob("*"):
        try:
            names[f"{pid}:{task.name}"] = (task / "comm").read_text().strip()
        except OSError:  # ended meanwhile
            continue
    return names


def place() -> Place:
    """From torch.distributed when it is initialised, else from the launcher's environment."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Place(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return environment_place()
