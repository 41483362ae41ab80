"""Events of a finished torch profiler, read from ``kineto_results.events()``.

For torch versions without ``trace_activities()``. Every version has it, and it leaves the one export that a trace
allows to the user. It does not say an event's category, so that is told from the device, the flags and the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_torch.event_text import INSTANT, LiveBatch, texts
from perfkit_torch.names import MEMORY_EVENT

_BATCH: Final = 1 << 13
_CPU: Final = 0  # c10::DeviceType
_RUNTIME_PREFIXES: Final = ("cuda", "hip", "cuLaunch", "cuMem", "cuStream", "cuEvent", "cuCtx", "cuGraph")


def batches(kineto_results: Any) -> Iterator[LiveBatch]:
    """The events as the Chrome export would write them."""
    events = kineto_results.events()
    for i in range(0, len(events), _BATCH):
        part = events[i : i + _BATCH]
        events[i : i + _BATCH] = repeat(None, len(part))  # torch's objects go as soon as they have been read
        yield _batch(part)


def _batch(events: list[Any]) -> LiveBatch:
    kind, count, names = type(events[0]), len(events), texts(type(events[0]).name, events)
    devices = [*map(int, map(kind.device_type, events))]
    categories = _categories(events, names, devices)
    dur_ns = np.fromiter(map(kind.duration_ns, events), np.int64, count)
    dur_ns[np.fromiter(map(INSTANT.__eq__, categories), np.bool_, count)] = 0
    pids, tids = _places(events, categories, devices)
    return LiveBatch(
        categories,
        [f"{name}.{more}" if more else name for name, more in zip(names, _overloads(events, names), strict=True)],
        pids,
        tids,
        [*map(_arguments, events, categories, devices)],
        (np.fromiter(map(kind.start_ns, events), np.int64, count), dur_ns),
    )


def _column(events: list[Any], name: str, default: Any) -> Iterable[Any]:
    """What a method gives of each event; ``default`` where this torch has no such method."""
    read = getattr(type(events[0]), name, None)
    return repeat(default, len(events)) if read is None else map(read, events)


def _overloads(events: list[Any], names: list[str]) -> Iterable[str]:
    """Of operators and kernels: in the Chrome export they are part of the name."""
    return ("" if n == MEMORY_EVENT else o for n, o in zip(names, _column(events, "overload_name", ""), strict=True))


def _categories(events: list[Any], names: list[str], devices: list[int]) -> list[str]:
    functions = _column(events, "is_python_function", False)
    annotations = _column(events, "is_user_annotation", False)
    linked = _column(events, "linked_correlation_id", 0)
    return [*map(_category, names, devices, functions, annotations, linked)]


def _category(name: str, device: int, function: bool, annotation: bool, linked: int) -> str:
    if name == MEMORY_EVENT:
        return INSTANT
    if device != _CPU:
        return _device_category(name, annotation)
    if function:
        return "python_function"
    if annotation or name.startswith("ProfilerStep#"):
        return "user_annotation"
    return "cuda_runtime" if linked or name.startswith(_RUNTIME_PREFIXES) else "cpu_op"


def _device_category(name: str, annotation: bool) -> str:
    if annotation:
        return "gpu_user_annotation"
    if name.startswith("Memcpy"):
        return "gpu_memcpy"
    return "gpu_memset" if name.startswith("Memset") else "kernel"


def _places(events: list[Any], categories: list[str], devices: list[int]) -> tuple[list[int], list[int]]:
    """Process and thread of host and memory events (the operating system's thread where it is known, else torch's own
    number of it); device and stream of device work."""
    kind, pid = type(events[0]), os.getpid()
    threads = [*map(kind.start_thread_id, events)]
    resources = [*_column(events, "device_resource_id", 0)]
    indices = map(kind.device_index, events)
    hosts = [device == _CPU or category == INSTANT for device, category in zip(devices, categories, strict=True)]
    pids = [pid if host else index for host, index in zip(hosts, indices, strict=True)]
    known = [
        not host or (device == _CPU and at > 0) for host, device, at in zip(hosts, devices, resources, strict=True)
    ]
    return pids, [at if ok else thread for ok, at, thread in zip(known, resources, threads, strict=True)]


def _arguments(event: Any, category: str, device: int) -> str:
    """As JSON text, without the braces."""
    if category == INSTANT:
        args = {"Bytes": event.nbytes(), "Device Type": device, "Device Id": event.device_index()}
    elif category in ("cpu_op", "user_annotation"):
        args = _operator_arguments(event)
    else:
        args = _work_arguments(event, category)
    return msgspec.json.encode(args)[1:-1].decode()


def _work_arguments(event: Any, category: str) -> dict[str, Any]:
    args: dict[str, Any] = {"correlation": event.correlation_id()}
    if event.linked_correlation_id():
        args["External id"] = event.linked_correlation_id()
    if category in ("kernel", "gpu_memcpy", "gpu_memset"):
        args["stream"] = event.device_resource_id()
    if category in ("gpu_memcpy", "gpu_memset"):
        args["bytes"] = event.nbytes()
    return args


def _operator_arguments(event: Any) -> dict[str, Any]:
    args: dict[str, Any] = {"External id": event.correlation_id()}
    if event.sequence_nr() >= 0:
        args |= {"Sequence number": event.sequence_nr(), "Fwd thread id": event.fwd_thread_id()}
    if event.shapes() or event.dtypes():
        args |= {"Input Dims": event.shapes(), "Input type": event.dtypes()}
    if event.stack():
        args["Call stack"] = ";".join(event.stack())
    if event.flops():
        args["flops"] = event.flops()
    return args
