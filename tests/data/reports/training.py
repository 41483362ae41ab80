"""The events of small trainings, in the terms of torch's Chrome traces. Times are in µs.

Each step takes 990 µs and begins 1,000 µs after the step before. It has four operators. Each operator launches one
kernel of 150 µs, so that a device is busy for 600 of 990 µs (60.6 %).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

Event = dict[str, Any]
Events = list[Event]

STEP_US, KERNEL_US, OPERATORS = 990, 150, 4
CUDA: Final = "cudaLaunchKernel"
A100: Final = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42505273344, "computeMajor": 8,
               "computeMinor": 0, "numSms": 108}  # fmt: skip
OPTIONS: Final = dict.fromkeys(("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"), 0)
HEADER: Final[dict[str, Any]] = {"schemaVersion": 1, "deviceProperties": [A100], **OPTIONS}


def span(cat: str | None, name: str, ts: float, dur: float, pid: Any = 100, tid: Any = 100, **args: Any) -> Event:
    """Return a complete event. ``cat`` None leaves the category out."""
    category = {} if cat is None else {"cat": cat}
    return {"ph": "X", **category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, correlation: int, device: int = 0, stream: int = 7, **more: Any) -> Event:
    """Return a kernel as Kineto writes it."""
    place = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
    return span("kernel", name, ts, dur, more.pop("pid", device), stream, **{"External id": correlation, **place},
                grid=[1, 1, 1], block=[32, 1, 1], **more)  # fmt: skip


def training(
    steps: Iterable[int] = (2, 3),
    start: float = 1000.0,
    devices: Sequence[int] = (0,),
    launch: str = CUDA,
    stream: int = 7,
) -> Events:
    """Return the events of a training that launches one kernel per operator and device."""
    events: Events = []
    correlation = 0
    for index, number in enumerate(steps):
        at = start + 1000 * index
        ids = {"External id": 10000 + index, "Ev Idx": 10000 + index}
        events.append(span("user_annotation", f"ProfilerStep#{number}", at, float(STEP_US), **ids))
        for operator in range(OPERATORS):
            begin = at + 200 * operator
            for place, device in enumerate(devices):
                correlation += 1
                ids = {"External id": correlation, "Ev Idx": correlation}
                if place == 0:
                    events.append(span("cpu_op", f"aten::op{operator}", begin + 20, 100.0, **ids))
                call = {"External id": correlation, "cbid": 211, "correlation": correlation}
                events.append(span("cuda_runtime", launch, begin + 40 + 12 * place, 10.0, **call))
                runs = begin + (60 if operator == 0 else 55) + 12 * place
                events.append(kernel(f"kernel_{operator}<float>", runs, float(KERNEL_US), correlation, device, stream))
    return events


def is_kernel(event: Event, device: int | None = None, stream: int | None = None) -> bool:
    """Return whether the event is a kernel (of this device, of this stream)."""
    args = event.get("args", {})
    return event.get("cat") == "kernel" and device in (None, args["device"]) and stream in (None, args["stream"])


def correlation_of(event: Event) -> int:
    """Return the correlation id of a launch or a kernel, or 0."""
    return int(event.get("args", {}).get("correlation", 0))


def without_kernels(events: Events, lost: Iterable[int]) -> Events:
    """Return the events without the kernels that have these correlation ids: their records were lost."""
    gone = frozenset(lost)
    return [event for event in events if not (is_kernel(event) and correlation_of(event) in gone)]


def changed(events: Events, chosen: Any, **values: Any) -> Events:
    """Return the events, with other values for the fields of those for which ``chosen(event)`` is true."""
    return [event | values if chosen(event) else event for event in events]


def shifted(events: Events, chosen: Any, by_us: float) -> Events:
    """Return the events, with another start for those for which ``chosen(event)`` is true."""
    return [event | {"ts": event["ts"] + by_us} if chosen(event) else event for event in events]
