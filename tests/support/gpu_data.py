"""Recordings of an H100 in tests/data/gpu, and the events of torch's own traces of them, read without perfkit."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Final

from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.chrome_check import ns
from tests.support.paths import DATA

GPU: Final = DATA / "gpu"
CHECKS: Final = GPU / "checks"
PROGRAMS: Final = sorted(path.parent.name for path in GPU.glob("*/native.json.gz"))
DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIMES: Final = ("cuda_runtime", "cuda_driver")
Span = tuple[int, int]


@dataclass(frozen=True)
class Native:
    """An event of torch's own trace. Times are in ns since 1970."""

    name: str
    cat: str
    start: int
    end: int
    tid: Any
    args: dict[str, Any]

    @property
    def span(self) -> Span:
        return self.start, self.end


@cache
def native(name: str) -> list[Native]:
    """Return the timed events of a program in the order of the file."""
    data = json.loads(gzip.decompress((GPU / name / "native.json.gz").read_bytes()), parse_float=Decimal)
    found, base = [], data["baseTimeNanoseconds"]
    for event in data["traceEvents"]:
        if (event["ph"] == "i" and event["name"] == "[memory]") or (event["ph"] == "X" and event["cat"] != "Trace"):
            start = base + ns(event["ts"])
            end = start + ns(event.get("dur", 0))
            found.append(Native(event["name"], event["cat"], start, end, event["tid"], event.get("args", {})))
    return found


def of(name: str, *categories: str) -> list[Native]:
    return [event for event in native(name) if event.cat in categories]


def native_steps(name: str) -> list[Native]:
    """Return the steps of the host in the order of time."""
    found = [event for event in of(name, "user_annotation") if event.name.startswith("ProfilerStep#")]
    return sorted(found, key=lambda event: event.start)


@cache
def live(name: str) -> Trace:
    """Load the run that perfkit's handler wrote."""
    return load(GPU / name / "run")


@cache
def file(name: str) -> Trace:
    """Load torch's own trace of the same profile."""
    return load(GPU / name / "native.json.gz")


def averages(name: str) -> list[dict[str, Any]]:
    """Return the rows of torch's ``key_averages()``: times in µs, memory in bytes."""
    found: list[dict[str, Any]] = json.loads(gzip.decompress((GPU / name / "averages.json.gz").read_bytes()))
    return found


def union(spans: Iterable[Span]) -> int:
    """Return the length of the union, span by span."""
    total, reach = 0, None
    for start, end in sorted(spans):
        if reach is None or start > reach:
            total, reach = total + end - start, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def cut(spans: Iterable[Span], within: Span) -> list[Span]:
    """Return the parts of the spans in one span."""
    parts = ((max(start, within[0]), min(end, within[1])) for start, end in spans)
    return [(start, end) for start, end in parts if end > start]
