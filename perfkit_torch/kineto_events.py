"""Events of a finished torch profiler, read from ``kineto_results.events()``.

For torch versions without ``trace_activities()``. Every version has it, and it leaves the one export that a trace
allows to the user. It does not say an event's category, so that is told from the device, the flags and the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from perfkit_core.sources.chrome import ChromeEvent
from perfkit_torch.names import MEMORY_EVENT
from perfkit_torch.texts import texts
from perfkit_torch.trace_activities import LiveBatch

_BATCH: Final = 1 << 16
_RUNTIME_PREFIXES: Final = ("cuda", "hip", "cuLaunch", "cuMem", "cuStream", "cuEvent", "cuCtx", "cuGraph")


def batches(kineto_results: Any) -> Iterator[LiveBatch]:
    """The events as the Chrome export would write them, in lists, with their times."""
    events = kineto_results.events()
    pid = os.getpid()
    for i in range(0, len(events), _BATCH):
        yield _batch(events[i : i + _BATCH], pid)


def _batch(events: list[Any], pid: int) -> LiveBatch:
    count, names = len(events), texts(type(events[0]).name, events)
    start_ns = np.fromiter((event.start_ns() for event in events), np.int64, count)
    dur_ns = np.fromiter(
        (0 if name == MEMORY_EVENT else event.duration_ns() for name, event in zip(names, events, strict=True)),
        np.int64,
        count,
    )
    return [_event(event, name, pid) for event, name in zip(events, names, strict=True)], (start_ns, dur_ns)


def _event(event: Any, name: str, pid: int) -> ChromeEvent:
    if name == MEMORY_EVENT:
        return _memory_event(event, pid)
    overload = getattr(event, "overload_name", str)()
    on_host = event.device_type().name == "CPU"
    category = _host_category(event, name) if on_host else _device_category(event, name)
    pid = pid if on_host else event.device_index()
    tid = _thread(event) if on_host else event.device_resource_id()
    name = f"{name}.{overload}" if overload else name  # as the Chrome export has it
    return ChromeEvent("X", name, category, pid=pid, tid=tid, args=_arguments(event, category))


def _memory_event(event: Any, pid: int) -> ChromeEvent:
    kind = event.device_type()
    args = {"Bytes": event.nbytes(), "Device Type": int(kind), "Device Id": event.device_index()}
    return ChromeEvent("i", MEMORY_EVENT, "cpu_instant_event", pid=pid, tid=_thread(event), args=args)


def _thread(event: Any) -> int:
    """The operating system's thread where it is known, else torch's own number of it."""
    resource = getattr(event, "device_resource_id", event.start_thread_id)()
    return int(resource if event.device_type().name == "CPU" and resource > 0 else event.start_thread_id())


def _host_category(event: Any, name: str) -> str:
    if _flag(event, "is_python_function"):
        return "python_function"
    if _flag(event, "is_user_annotation") or name.startswith("ProfilerStep#"):
        return "user_annotation"
    if event.linked_correlation_id() or name.startswith(_RUNTIME_PREFIXES):
        return "cuda_runtime"
    return "cpu_op"


def _device_category(event: Any, name: str) -> str:
    if _flag(event, "is_user_annotation"):
        return "gpu_user_annotation"
    if name.startswith("Memcpy"):
        return "gpu_memcpy"
    return "gpu_memset" if name.startswith("Memset") else "kernel"


def _flag(event: Any, name: str) -> bool:
    return bool(getattr(event, name, lambda: False)())


def _arguments(event: Any, category: str) -> dict[str, Any]:
    if category in ("cpu_op", "user_annotation"):
        return _operator_arguments(event)
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
