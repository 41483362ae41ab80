"""Operator tables of real GPU traces, compared with a slow computation in plain Python from the JSON file.

Host events nest by time on their thread. A kernel belongs to the innermost operator around the runtime call with the
same correlation id. A second, independent test uses the external id, which is the operator id that the profiler writes
into the kernel. torch also computes its device columns from external ids.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.readers.load import load
from perfkit_core.views.operators import operators

FILES = ["h100-bert-small", "h100-vit", "mi300x-bert-small", "mi300x-vit", "b200-eager-rank0of8"]
HOST = {"cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
COLUMNS = ("calls", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns", "self_cpu_bytes",
           "total_cpu_bytes", "self_device_bytes", "total_device_bytes")  # fmt: skip


class Event:
    """A host event with its children, the durations of its kernels, and its allocated bytes."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.name, self.cat, self.args = raw["name"], raw["cat"], raw.get("args", {})
        self.thread = (raw["pid"], raw["tid"])
        self.start = int(Decimal(raw["ts"]) * 1000)
        self.end = self.start + int(Decimal(raw.get("dur", "0")) * 1000)
        self.parent: Event | None = None
        self.children: list[Event] = []
        self.kernels: list[int] = []
        self.bytes: dict[bool, int] = {True: 0, False: 0}

    @property
    def operator(self) -> bool:
        """Whether the operator table has a row for the event. The profiler's bookkeeping and the spans of data loaders
        and optimizers have no row."""
        bookkeeping = ("profiler::", "aten::is_leaf", "aten::output_nr", "aten::_version")
        labels = ("Optimizer.", "enumerate(Data", "ProfilerStep")
        counted = self.cat == "cpu_op" or self.name.startswith("nccl:")
        return counted and not self.name.startswith((*bookkeeping, *labels))

    def self_ns(self) -> int:
        covered, reach = 0, self.start
        for child in sorted(self.children, key=lambda child: child.start):
            covered += max(0, child.end - max(child.start, reach))
            reach = max(reach, child.end)
        return self.end - self.start - covered

    def all(self) -> list[Event]:
        return [self, *(below for child in self.children for below in child.all())]


def read(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()).decode()
    events: list[dict[str, Any]] = json.loads(text, parse_float=str, parse_int=str)["traceEvents"]
    return [event for event in events if event.get("ph") in ("X", "i")]


def nested(raw: list[dict[str, Any]]) -> list[Event]:
    """Return the host events, linked as trees."""
    events = [Event(each) for each in raw if each.get("cat") in HOST and not each["name"].startswith("profiler::")]
    threads: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        threads[event.thread].append(event)
    for thread in threads.values():
        stack: list[Event] = []
        for event in sorted(thread, key=lambda event: (event.start, -event.end)):
            while stack and (event.start >= stack[-1].end or event.end > stack[-1].end):
                stack.pop()
            if stack:
                event.parent = stack[-1]
                stack[-1].children.append(event)
            stack.append(event)
    return events


def nearest(event: Event | None) -> Event | None:
    while event is not None and not event.operator:
        event = event.parent
    return event


def attach(events: list[Event], raw: list[dict[str, Any]]) -> int:
    """Assign kernels to operators by correlation id, and memory to the innermost event. Return the total time of the
    kernels that have no operator."""
    calls = {
        e.args["correlation"]: e for e in events if e.cat in ("cuda_runtime", "cuda_driver") and "correlation" in e.args
    }
    rest = 0
    for each in raw:
        if each.get("cat") in DEVICE:
            owner = nearest(calls.get(each["args"]["correlation"]))
            if owner is None:
                rest += int(Decimal(each["dur"]) * 1000)
            else:
                owner.kernels.append(int(Decimal(each["dur"]) * 1000))
        elif each.get("name") == "[memory]":
            _allocate(events, each)
    return rest


def _allocate(events: list[Event], raw: dict[str, Any]) -> None:
    at, thread = int(Decimal(raw["ts"]) * 1000), (raw["pid"], raw["tid"])
    around = [e for e in events if e.thread == thread and e.start <= at < e.end]
    if around:
        inner = max(around, key=lambda e: (e.start, -e.end))
        inner.bytes[raw["args"]["Device Type"] == "0"] += int(raw["args"]["Bytes"])


def rows(events: list[Event]) -> dict[str, list[int]]:
    """Return the rows of the table. If an event is the only child of an event with the same name, both are one call."""
    found: dict[str, list[int]] = defaultdict(lambda: [0] * len(COLUMNS))
    for event in events:
        parent = event.parent
        again = parent is not None and parent.name == event.name and len(parent.children) == 1
        if not event.operator or again:
            continue
        chain = [event]
        while len(chain[-1].children) == 1 and chain[-1].children[0].name == event.name:
            chain.append(chain[-1].children[0])
        below = event.all()
        numbers = (1, sum(e.self_ns() for e in chain), event.end - event.start,
                   sum(sum(e.kernels) for e in chain), sum(sum(e.kernels) for e in below),
                   sum(e.bytes[True] for e in chain), sum(e.bytes[True] for e in below),
                   sum(e.bytes[False] for e in chain), sum(e.bytes[False] for e in below))  # fmt: skip
        found[event.name] = [old + new for old, new in zip(found[event.name], numbers, strict=True)]
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_number_recomputed_from_the_file(name: str, traces: Path) -> None:
    path = traces / "torch" / f"{name}.json.gz"
    raw = read(path)
    events = nested(raw)
    rest = attach(events, raw)
    table = operators.table(load(path), ViewRequest())
    own = table["name"].str.startswith("(")
    assert table.loc[own, "self_device_ns"].sum() == rest
    table[list(COLUMNS[5:])] = table[list(COLUMNS[5:])].fillna(0)
    mine = {row["name"]: [row[column] for column in COLUMNS] for row in table[~own].to_dict("records")}
    assert mine == rows(events)
    print(f"{name}: {len(COLUMNS) * len(mine)} numbers equal")
    assert len(mine) > 20


@pytest.mark.parametrize("name", FILES)
def test_self_device_time_by_the_ids_in_kernels(name: str, traces: Path) -> None:
    """In these recordings, every kernel launched in an operator has the operator's external id. Labels have no external
    id, so their kernels count for the enclosing operator."""
    path = traces / "torch" / f"{name}.json.gz"
    raw = read(path)
    names = {each["args"]["External id"]: each["name"] for each in raw if each.get("cat") == "cpu_op"}
    expected: Counter[str] = Counter()
    for each in raw:
        if each.get("cat") in DEVICE:
            expected[names.get(each["args"].get("External id"), "")] += int(Decimal(each["dur"]) * 1000)
    table = operators.table(load(path), ViewRequest())
    mine = {row["name"]: row["self_device_ns"] for row in table.to_dict("records") if row["self_device_ns"]}
    if "(launched outside operators)" in mine:
        mine[""] = mine.pop("(launched outside operators)")
    for label in [key for key in mine if key.startswith("nccl:")]:
        mine["record_param_comms"] = mine.get("record_param_comms", 0) + mine.pop(label)
    assert mine == dict(expected)
    assert len(mine) > 5
