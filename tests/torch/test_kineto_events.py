"""The reader of ``events()`` for versions of torch without ``trace_activities()``. The device work is written by hand,
so no device is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.readers.load import load  # noqa: E402
from perfkit_torch import live_events, on_trace_ready  # noqa: E402

CPU, CUDA = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA


@dataclass(frozen=True)
class Event:
    """Replacement for torch's event object. Each field is a method."""

    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"read one by one: {name}")


def _method(name: str, default: Any) -> Any:
    return lambda self: self.fields.get(name, default)


_DEFAULTS = {
    "name": "", "start_ns": 0, "duration_ns": 0, "device_type": CPU, "device_index": 0, "device_resource_id": 0,
    "start_thread_id": 1, "correlation_id": 0, "linked_correlation_id": 0, "is_user_annotation": False,
    "is_python_function": False, "sequence_nr": -1, "fwd_thread_id": 0, "shapes": [], "dtypes": [], "stack": [],
    "flops": 0, "nbytes": 0,
}  # fmt: skip
for _name, _default in _DEFAULTS.items():
    setattr(Event, _name, _method(_name, _default))


@dataclass(frozen=True)
class Results:
    """Replacement for ``kineto_results``."""

    rows: tuple[dict[str, Any], ...]

    def events(self) -> list[Event]:
        return [Event(row) for row in self.rows]


ROWS = (
    {"name": "aten::mm", "start_ns": 100, "duration_ns": 50, "correlation_id": 5, "device_resource_id": 77,
     "shapes": [[2, 3], [3, 4]], "dtypes": ["float", "float"], "sequence_nr": 9, "flops": 48},
    {"name": "cudaLaunchKernel", "start_ns": 110, "duration_ns": 20, "correlation_id": 31, "linked_correlation_id": 5},
    {"name": "gemm<float>", "start_ns": 200, "duration_ns": 300, "device_type": CUDA, "device_index": 1,
     "device_resource_id": 7, "correlation_id": 31, "linked_correlation_id": 5},
    {"name": "Memcpy HtoD (Pinned -> Device)", "start_ns": 600, "duration_ns": 80, "device_type": CUDA,
     "device_index": 1, "device_resource_id": 8, "correlation_id": 32, "nbytes": 4096},
    {"name": "Memset (Device)", "start_ns": 700, "duration_ns": 5, "device_type": CUDA, "device_resource_id": 8},
    {"name": "step", "start_ns": 200, "duration_ns": 400, "device_type": CUDA, "is_user_annotation": True,
     "correlation_id": 3},
    {"name": "[memory]", "start_ns": 115, "duration_ns": 999, "device_type": CUDA, "device_index": 1,
     "device_resource_id": 77, "nbytes": -64},
    {"name": "model.py(3): forward", "start_ns": 90, "duration_ns": 90, "is_python_function": True},
    {"name": "Event Sync", "start_ns": 800, "duration_ns": 4, "device_type": CUDA, "device_resource_id": 8,
     "correlation_id": 33},
    {"name": "Lazy Function Loading", "start_ns": 95, "duration_ns": 3},
    {"name": "cuKernelGetFunction", "start_ns": 96, "duration_ns": 1, "correlation_id": 34},
)  # fmt: skip


def test_host_and_device_work() -> None:
    found = on_trace_ready.read(live_events.from_events(Results(ROWS), {})).recorded(in_order=False).columns.to_pydict()
    assert found["kind"] == ["operator", "runtime", "kernel", "memcpy", "memset", "annotation", "memory", "python",
                             "sync", "overhead", "runtime"]  # fmt: skip
    assert found["category"] == [
        "cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cpu_instant_event",
        "python_function", "cuda_sync", "overhead", "cuda_driver",
    ]  # fmt: skip
    assert found["start_ns"] == [100, 110, 200, 600, 700, 200, 115, 90, 800, 95, 96]
    assert found["dur_ns"] == [50, 20, 300, 80, 5, 400, 0, 90, 4, 3, 1]
    pid = os.getpid()
    assert found["pid"] == [pid, pid, None, None, None, None, pid, pid, None, pid, pid]
    assert found["tid"] == [77, 1, None, None, None, None, 77, 1, None, 1, 1]
    cuda = ["cuda:1", "cuda:1", "cuda:0", "cuda:0", "cuda:1"]
    assert found["device"] == ["cpu", "cpu", *cuda, "cpu", "cuda:0", "cpu", "cpu"]
    assert found["stream"] == [None, None, 7, 8, 8, None, None, None, 8, None, None]
    assert found["correlation"] == [None, 31, 31, 32, 0, None, None, None, 33, None, 34]
    assert found["external"] == [5, 5, 5, None, None, 3, None, None, None, None, None]
    assert found["bytes"] == [None, None, None, 4096, None, None, -64, None, None, None, None]
    assert found["copy_kind"][3] == "HtoD pinned"
    assert found["shapes"][0] == "[[2,3],[3,4]]"
    assert (found["sequence"][0], found["flops"][0]) == (9, 48)


def test_nothing_recorded() -> None:
    assert on_trace_ready.read(live_events.from_events(Results(()), {})).recorded(in_order=False).columns.num_rows == 0


def test_python_functions_of_the_tree_are_those_of_the_activities() -> None:
    """``events()`` of torch 2.11 has no Python functions. The tree of events has them in each version."""
    net = torch.nn.Linear(3, 4)
    with torch.profiler.profile(with_stack=True) as profiler:
        net(torch.ones(2, 3)).sum().backward()
    results, threads = profiler.profiler.kineto_results, {}
    for _ in live_events.from_events(results, threads):
        pass

    def rows(batches: Iterable[live_events.LiveBatch]) -> list[tuple[Any, ...]]:
        return sorted(
            row[1:]
            for batch in batches
            for row in zip(batch.categories, batch.names, batch.pids, batch.tids, *batch.times, strict=True)
            if row[0] == "python_function"
        )

    found = rows(live_events.python_functions(results, threads))
    assert found == rows(live_events.from_activities(results, False))
    assert len(found) > 20


@pytest.mark.parametrize("profiler", ["torch.profiler", "torch.autograd.profiler"])
def test_a_list_of_events_that_torch_exports_is_read(tmp_path: Path, profiler: str) -> None:
    weight = torch.ones(4, 4, requires_grad=True)
    profiled = torch.profiler.profile() if profiler == "torch.profiler" else torch.autograd.profiler.profile()
    with profiled as recorded:
        for _ in range(2):
            torch.mm(torch.ones(4, 4), weight).relu().sum().backward()
    events = recorded.events() if profiler == "torch.profiler" else recorded.function_events
    events.export_chrome_trace(str(tmp_path / "events.json"))
    names = [event["name"] for event in json.loads((tmp_path / "events.json").read_text())]
    assert sorted(load(tmp_path / "events.json").events["name"].to_pylist()) == sorted(names)
    assert names.count("aten::mm") >= 4
