"""Writes events in the formats of other profilers: Paddle's Chrome JSON and protobuf, and exports of Nsight Systems."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.data.reports.training import HEADER, Event, Events, correlation_of
from tests.support.nsys import Export
from tests.support.pb_messages import varint

Content = Callable[[], "bytes | dict[str, Any] | list[Any] | Export"]
EPOCH_US: Final = 1_795_000_000_000_000
"""2026-11-18, the start of times in Paddle's formats, which always are times since 1970."""
PADDLE_TYPES: Final = {"user_annotation": ("ProfileStep", 2), "cpu_op": ("Operator", 0),
                       "cuda_runtime": ("CudaRuntime", 3),
                       "kernel": ("Kernel", 4), "gpu_memcpy": ("Memcpy", 5), "gpu_memset": ("Memset", 6),
                       "forward": ("Forward", 9),
                       "backward": ("Backward", 10), "optimizer": ("Optimization", 11),
                       "label": ("PythonUserDefined", 14)}  # fmt: skip
"""Paddle's name and number of the type of each category."""
GPU: Final = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42505273344, "computeMajor": 8,
              "computeMinor": 0}  # fmt: skip


def write(path: Path, content: Content) -> Path:
    """Write content to a file: bytes as they are, an export of Nsight Systems as SQLite, other content as JSON. Names
    that end with ``.gz`` are compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    value = content()
    if isinstance(value, Export):
        return value.write(path)
    data = value if isinstance(value, bytes) else json.dumps(value, indent=1).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
    return path


def chrome(events: Events, **header: Any) -> dict[str, Any]:
    """Return the content of a Chrome trace of torch."""
    return {**HEADER, **header, "traceEvents": events}


def paddle_name(event: Event) -> str:
    """Return the name that Paddle would give to an event."""
    name = str(event["name"])
    return name.replace("ProfilerStep#", "ProfileStep#").replace("aten::", "")


def _duration(us: float) -> str:
    return f"[{us:.3f} us]" if us < 1000 else f"[{us / 1000:.3f} ms]"


def paddle_json(events: Events, epoch_us: int = EPOCH_US, **header: Any) -> dict[str, Any]:
    """Return the content of a Chrome trace of Paddle."""
    first = min(event["ts"] for event in events)
    return {"displayTimeUnit": "ms", "schemaVersion": "1.0.2", "span_index": "0", "deviceProperties": [GPU], **header,
            "traceEvents": [_paddle_event(event, first, epoch_us) for event in events]}  # fmt: skip


def _paddle_event(event: Event, first: float, epoch_us: int) -> Event:
    start, us, args = event["ts"] - first, event.get("dur", 0), event["args"]
    times = {"start_time": f"{start:.3f} us", "end_time": f"{start + us:.3f} us"}
    category, _ = PADDLE_TYPES[event["cat"]]
    kept = {"correlation id": args["correlation"]} if "correlation" in args else {}
    kept |= {key: args[key] for key in ("device", "context", "stream", "grid", "block", "bytes") if key in args}
    if event["cat"] == "cpu_op":
        none: dict[str, Any] = {"input_shapes": {}, "input_dtypes": {}, "callstack": ""}
        kept = {key: args.get(key, none[key]) for key in none}
    python = event["cat"] not in ("cpu_op", "cuda_runtime")
    thread = event["tid"] if "stream" in kept else f"{event['tid']}({'Python' if python else 'C++'})"
    return event | {"name": paddle_name(event) + _duration(us), "cat": category, "ts": int(event["ts"]) + epoch_us,
                    "tid": thread, "args": times | kept}  # fmt: skip


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Return a protobuf message from numbers and values of fields."""
    result = b""
    for number, value in fields:
        if isinstance(value, int):
            result += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            result += varint(number << 3 | 2) + varint(len(data)) + data
    return result


def paddle_pb(events: Events, epoch_us: int = EPOCH_US, parents: dict[int, int] | None = None) -> bytes:
    """Return the content of a protobuf of Paddle. The parent of a host event is the innermost host event around it, or
    the one that ``parents`` names, both by their position among the host events."""
    hosts = [event for event in events if event["cat"] not in ("cuda_runtime", "kernel", "gpu_memcpy")]
    work = {correlation_of(event): event for event in events if event["cat"] in ("kernel", "gpu_memcpy")}
    calls: dict[int, list[bytes]] = {}
    for event in events:
        if event["cat"] == "cuda_runtime":
            device = work.get(correlation_of(event))
            parts = [
                (1, _pb_call(event, epoch_us)),
                *([(2, message((1, _pb_work(device, epoch_us))))] if device else []),
            ]
            calls.setdefault(_innermost(hosts, event), []).append(message(*parts))
    around = {row: _innermost(hosts, event, row) for row, event in enumerate(hosts)} | (parents or {})
    nodes = [_pb_node(0, -1, message((1, "root node"), (2, 7), (3, 0), (4, -1), (5, 100), (6, 0)), calls.get(-1, []))]
    for row, event in enumerate(hosts):
        _, number = PADDLE_TYPES[event["cat"]]
        fields = message((1, paddle_name(event)), (2, number), *_pb_times(event, epoch_us, 3), (5, event["pid"]),
                         (6, event["tid"]))  # fmt: skip
        nodes.append(_pb_node(row + 1, around[row] + 1, fields, calls.get(row, [])))
    thread = message((1, 100), *((2, node) for node in nodes))
    gpu = message(*enumerate([GPU["id"], GPU["name"], GPU["totalGlobalMem"], 8, 0], 1))  # type: ignore[arg-type]
    return message((1, "1.0.2"), (2, 0), (3, thread), (5, gpu))


def _innermost(hosts: Events, event: Event, itself: int | None = None) -> int:
    at, end = event["ts"], event["ts"] + event["dur"]
    around = [
        row
        for row, host in enumerate(hosts)
        if row != itself and host["ts"] <= at and end <= host["ts"] + host["dur"] and host["dur"] > event["dur"]
    ]
    return min(around, key=lambda row: hosts[row]["dur"], default=-1)


def _pb_node(number: int, parent: int, event: bytes, calls: Iterable[bytes]) -> bytes:
    return message((1, number), (2, parent), (3, event), *((4, call) for call in calls))


def _pb_times(event: Event, epoch_us: int, field: int) -> list[tuple[int, int]]:
    if not event["ts"]:
        return [(field, 0), (field + 1, 0)]
    start = round(event["ts"] * 1000) + epoch_us * 1000
    return [(field, start), (field + 1, start + round(event["dur"] * 1000))]


def _pb_call(event: Event, epoch_us: int) -> bytes:
    return message((1, event["name"]), *_pb_times(event, epoch_us, 2), (4, event["pid"]), (5, event["tid"]),
                   (6, correlation_of(event)), (7, 211))  # fmt: skip


def _pb_work(event: Event, epoch_us: int) -> bytes:
    args = event["args"]
    _, number = PADDLE_TYPES[event["cat"]]
    size = message(*((field, 1) for field in range(1, 7)))
    return message((1, event["name"]), (2, number), *_pb_times(event, epoch_us, 3), (5, args["device"]), (6, 1),
                   (7, args["stream"]), (8, args["correlation"]), (9, size))  # fmt: skip


def nsys(events: Events) -> Export:
    """Return an export of Nsight Systems of the same process."""
    export = Export()
    for event in events:
        start, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
        if event["cat"] == "kernel":
            place = {"deviceId": event["args"]["device"], "streamId": event["args"]["stream"]}
            export.kernel(event["name"], start, end, correlation_of(event), **place)
        elif event["cat"] == "cuda_runtime":
            export.call(f"{event['name']}_v7000", start, end, correlation_of(event))
        elif event["name"].startswith("ProfilerStep#"):
            export.range(f"step {event['name'].partition('#')[2]}", start, end)
        else:
            export.range(f"{event['name']}, op_id = {event['args'].get('External id', 0)}", start, end)
    return export
