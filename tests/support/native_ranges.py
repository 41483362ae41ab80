"""Time ranges as the profilers report them, as reference values for perfkit's numbers. perfkit's code is not used.

The sources are torch's event list, torch's file, and Paddle's node trees. A range is (start, end) in nanoseconds.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Range = tuple[int, int]
Ranges = dict[str, list[Range]]


def first_of(ranges: Ranges, order: Iterable[str], window: Range) -> dict[str, int]:
    """Return how much time of the window each name gets. If several names have a range at a moment, the first of them
    in ``order`` gets it. Moments without a range count as "idle"."""
    start, end = window
    inside = {name: [(s, e) for s, e in ranges.get(name, []) if s < end and e > start] for name in order}
    marks = sorted({start, end, *(min(max(t, start), end) for some in inside.values() for r in some for t in r)})
    found = dict.fromkeys([*order, "idle"], 0)
    for low, high in itertools.pairwise(marks):
        names = (name for name in order if any(s <= low and high <= e for s, e in inside[name]))
        found[next(names, "idle")] += high - low
    return found


def covered(ranges: Iterable[Range]) -> int:
    """Return the duration of the union of the ranges."""
    total, reach = 0, -(2**62)
    for start, end in sorted(ranges):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total


def clipped(ranges: Iterable[Range], window: Range) -> list[Range]:
    return [(max(s, window[0]), min(e, window[1])) for s, e in ranges if s < window[1] and e > window[0]]


# -- live torch


def torch_ranges(events: list[Any]) -> Ranges:
    found: Ranges = defaultdict(list)
    for event in events:
        found[_torch_kind(event)].append((round(event.time_range.start * 1000), round(event.time_range.end * 1000)))
    return found


def _torch_kind(event: Any) -> str:
    for start, kind in (("ProfilerStep", "step"), ("enumerate(DataLoader)", "input"), ("Optimizer.", "optimizer")):
        if event.name.startswith(start):
            return kind
    return "communication" if event.name.startswith(("gloo:", "c10d::")) else "operator"


# -- Paddle's node trees


def nodes(result: Any) -> Iterator[tuple[Any, bool]]:
    """Yield every host node below the roots, and whether the node is inside a Dataloader node."""
    pending = [(child, False) for root in result.get_data().values() for child in root.children_node]
    while pending:
        node, loading = pending.pop()
        yield node, loading
        pending += [(child, loading or node.type.name == "Dataloader") for child in node.children_node]


def paddle_ranges(result: Any) -> Ranges:
    """Return the ranges of host nodes by type. Operators inside the data loader have the type "Loading"."""
    found: Ranges = defaultdict(list)
    for node, loading in nodes(result):
        kind = "Loading" if loading and node.type.name == "Operator" else node.type.name
        found[kind].append((node.start_ns, node.end_ns))
    return found


def device_ranges(result: Any) -> Ranges:
    """Return the ranges of device nodes by type. Kernels with nccl in their name have the type "nccl"."""
    found: Ranges = defaultdict(list)
    roots = list(result.get_data().values())
    for node in [*roots, *(node for node, _ in nodes(result))]:
        for call in node.runtime_node:
            found["CudaRuntime"].append((call.start_ns, call.end_ns))
            for work in call.device_node:
                kind = "nccl" if "nccl" in work.name else work.type.name
                found[kind].append((work.start_ns, work.end_ns))
    return found


# -- a file of torch


class File:
    """One rank of a training on 8 GPUs, with times in whole microseconds, NCCL and a data loader."""

    def __init__(self, path: Path) -> None:
        events = json.loads(path.read_text())["traceEvents"]
        self.events = [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]

    def ranges(self, wanted: Callable[[dict[str, Any]], bool]) -> list[Range]:
        return [range_of(event) for event in self.events if wanted(event)]

    def category(self, *names: str) -> list[Range]:
        return self.ranges(lambda event: event.get("cat") in names)

    @property
    def step(self) -> Range:
        (found,) = self.ranges(lambda event: str(event["name"]).startswith("ProfilerStep"))
        return found


def range_of(event: dict[str, Any]) -> Range:
    return event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000


def _is_call(event: dict[str, Any]) -> bool:
    return event.get("cat") not in KERNELS and event["name"].startswith(("nccl:", "c10d::"))


KERNELS = ("kernel", "Kernel")
COPIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "Operator", "Runtime", "overhead")


def communication(file: File) -> list[Range]:
    """Return the ranges of communication: the NCCL kernels, and the outermost host calls of collectives without NCCL
    kernels."""
    launches = {e["args"].get("correlation"): e for e in file.events if "Runtime" in e["cat"] or "cuda_" in e["cat"]}
    kernels = [event for event in file.events if event["cat"] in KERNELS and "nccl" in event["name"]]
    started = [launches[kernel["args"]["correlation"]] for kernel in kernels]
    calls = [event for event in file.events if _is_call(event)]
    outermost = [call for call in calls if not any(is_inside(call, other) for other in calls if other is not call)]
    alone = [call for call in outermost if not any(is_inside(launch, call) for launch in started)]
    return [range_of(event) for event in (*kernels, *alone)]


def is_inside(event: dict[str, Any], around: dict[str, Any]) -> bool:
    (start, end), (low, high) = range_of(event), range_of(around)
    return event["tid"] == around["tid"] and low <= start and end <= high and (start, end) != (low, high)
