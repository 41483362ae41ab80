"""Events of a finished torch profiler, read from ``kineto_results.events()``.

For torch versions without ``trace_activities()``. Every version has it, and it leaves the one export that a trace
allows to the user. It does not say an event's category, so that is told from the device, the flags and the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from perfkit_torch.event_text import INSTANT, LiveBatch
from perfkit_torch.names import MEMORY_EVENT
from perfkit_torch.texts import texts

_BATCH: Final = 1 << 13
_RUNTIME_PREFIXES: Final = ("cuda", "hip", "cuLaunch", "cuMem", "cuStream", "cuEvent", "cuCtx", "cuGraph")


def batches(kineto_results: Any) -> Iterator[LiveBatch]:
    """The events as the Chrome export would write them."""
    events = kineto_results.events()
    for i in range(0, len(events), _BATCH):
        yield _batch(events[i : i + _BATCH])


def _batch(events: list[Any]) -> LiveBatch:
    kind, count, names = type(events[0]), len(events), texts(type(events[0]).name, events)
    categories = [*map(_category, events, names)]
    start_ns = np.fromiter(map(kind.start_ns, events), np.int64, count)
    dur_ns = np.fromiter(map(kind.duration_ns, events), np.int64, count)
    dur_ns[np.fromiter(map(INSTANT.__eq__, categories), np.bool_, count)] = 0
    metadata = [_json(_arguments(event, category)) for event, category in zip(events, categories, strict=True)]
    return LiveBatch(
        categories,
        [*map(_full_name, events, names)],
        [*map(_process, events, categories)],
        [*map(_resource, events, categories)],
        [""] * count,
        metadata,
        (start_ns, dur_ns),
    )


def _json(args: dict[str, Any]) -> str:
    return msgspec.json.encode(args)[1:-1].decode()


def _full_name(event: Any, name: str) -> str:
    overload = "" if name == MEMORY_EVENT else getattr(event, "overload_name", str)()
    return f"{name}.{overload}" if overload else name  # as the Chrome export has it


def _on_host(event: Any) -> bool:
    return bool(event.device_type().name == "CPU")


def _process(event: Any, category: str) -> int:
    return os.getpid() if category == INSTANT or _on_host(event) else int(event.device_index())


def _resource(event: Any, category: str) -> int:
    return _thread(event) if category == INSTANT or _on_host(event) else int(event.device_resource_id())


def _thread(event: Any) -> int:
    """The operating system's thread where it is known, else torch's own number of it."""
    resource = getattr(event, "device_resource_id", event.start_thread_id)()
    return int(resource if _on_host(event) and resource > 0 else event.start_thread_id())


def _category(event: Any, name: str) -> str:
    if name == MEMORY_EVENT:
        return INSTANT
    return _host_category(event, name) if _on_host(event) else _device_category(event, name)


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
    if category == INSTANT:
        kind = int(event.device_type())
        return {"Bytes": event.nbytes(), "Device Type": kind, "Device Id": event.device_index()}
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
