"""The division of step time in both frameworks.

The expected numbers come from the profilers themselves: from torch's event list or file, and from Paddle's node trees.
They are computed from ranges of nanoseconds, without perfkit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perfkit_core
import perfkit_paddle
import perfkit_torch
from perfkit_core.trace.model.trace import Trace
from tests.support.native_ranges import (
    COPIES,
    HOST,
    KERNELS,
    File,
    clipped,
    communication,
    covered,
    device_ranges,
    first_of,
    is_inside,
    paddle_ranges,
    range_of,
    torch_ranges,
)  # fmt: skip

BATCHES, FEATURES = 6, 16
RECORDED = 3


# -- live runs: perfkit's trace, and the native events of the last recorded cycle --------------------------------------


@pytest.fixture(scope="module")
def torch_run(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, list[Any]]:
    """Record an MLP with batches from a DataLoader."""
    events, run = list[Any](), tmp_path_factory.mktemp("torch")
    net = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(net.parameters())
    loader = torch.utils.data.DataLoader(torch.randn(8 * BATCHES, FEATURES), batch_size=8)
    handler = perfkit_torch.trace_handler(run, also=[lambda profiler: events.extend(profiler.events())])
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=RECORDED)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        for batch in loader:
            net(batch).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    return perfkit_core.load(run), events


@pytest.fixture(scope="module")
def paddle_run(paddle: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Any]:
    """Record the same model in Paddle. Return perfkit's trace, and the result with the node trees from which Paddle
    makes its tables."""
    results, run = list[Any](), tmp_path_factory.mktemp("paddle")
    net = paddle.nn.Sequential(paddle.nn.Linear(FEATURES, 32), paddle.nn.ReLU(), paddle.nn.Linear(32, 4))
    optimizer = paddle.optimizer.SGD(parameters=net.parameters())
    loader = paddle.io.DataLoader(paddle.io.TensorDataset([paddle.randn([8 * BATCHES, FEATURES])]), batch_size=8)
    handler = perfkit_paddle.trace_handler(run, also=[lambda profiler: results.append(profiler.profiler_result)])
    with paddle.profiler.Profiler(scheduler=(2, 2 + RECORDED), on_trace_ready=handler) as profiler:
        for (batch,) in loader:
            net(batch).square().sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            profiler.step()
    return perfkit_core.load(run), results[0]


@pytest.fixture(scope="module")
def synthetic(paddle: Any, traces: Path) -> tuple[Trace, Any]:
    """Return a Paddle profile with device work, and the result of reading it with Paddle."""
    path = traces / "paddle" / "gpu-synthetic" / "gpu1.pb"
    return perfkit_core.load(path), paddle.profiler.load_profiler_result(str(path))


# -- a torch file with device work, read without perfkit ---------------------------------------------------------------


@pytest.fixture(scope="module")
def dlrm(traces: Path) -> tuple[Trace, File]:
    path = traces / "torch" / "dlrm-8xv100" / "rank2.json"
    return perfkit_core.load(path), File(path)


def test_the_parts_of_a_step_equal_torchs_ranges(torch_run: tuple[Trace, list[Any]]) -> None:
    """On a CPU, operators compute, except those of the data loader. Time that is only in an Optimizer range is
    framework time."""
    trace, events = torch_run
    ranges = torch_ranges(events)
    loading = ranges["input"]
    ranges["compute"] = [r for r in ranges["operator"] if not any(s <= r[0] and r[1] <= e for s, e in loading)]
    ranges["framework"] = ranges["optimizer"] + ranges["operator"]
    table = perfkit_core.summarize(trace, "partition", by="step")
    assert len(table) == len(ranges["step"]) == RECORDED
    for (_, row), step in zip(table.iterrows(), sorted(ranges["step"]), strict=True):
        found = first_of(ranges, ("compute", "input", "framework"), step)
        assert [row[f"{name}_ns"] for name in ("compute", "input_wait", "framework", "idle")] == list(found.values())
        assert row["exposed_communication_ns"] == 0
        assert sum(found.values()) == row["dur_ns"]


def test_the_parts_of_a_step_equal_the_ranges_of_a_torch_file(dlrm: tuple[Trace, File]) -> None:
    trace, file = dlrm
    ranges = {
        "device_compute": file.ranges(lambda event: event.get("cat") in KERNELS and "nccl" not in event["name"]),
        "exposed_communication": communication(file),
        "exposed_copy": file.category(*COPIES),
        "input_wait": file.ranges(lambda event: str(event["name"]).startswith("enumerate(DataLoader)")),
        "launch_and_host": file.ranges(
            lambda event: event.get("cat") in HOST and not event["name"].startswith("ProfilerStep")
        ),
    }
    found = first_of(ranges, ranges, file.step)
    table = perfkit_core.summarize(trace, "partition").set_index("category")
    assert table["total_ns"].to_dict() == found
    assert min(found.values()) >= 0
    assert found["exposed_communication"] > found["device_compute"] > 0


def test_the_parts_of_a_step_equal_paddles_ranges(paddle_run: tuple[Trace, Any]) -> None:
    trace, result = paddle_run
    ranges = paddle_ranges(result)
    ranges["framework"] = [r for kind, some in ranges.items() if kind not in ("ProfileStep", "Operator") for r in some]
    table = perfkit_core.summarize(trace, "partition", by="step")
    steps = sorted(ranges["ProfileStep"])[: len(table)]
    assert len(steps) == RECORDED
    for (_, row), step in zip(table.iterrows(), steps, strict=True):
        found = first_of(ranges, ("Operator", "Dataloader", "framework"), step)
        assert [row[f"{name}_ns"] for name in ("compute", "input_wait", "framework", "idle")] == list(found.values())
        assert found["Dataloader"] > 0
        assert found["framework"] > 0


def test_the_parts_of_a_step_with_devices_equal_paddles_tree(synthetic: tuple[Trace, Any]) -> None:
    trace, result = synthetic
    device, host = device_ranges(result), paddle_ranges(result)
    ranges = {
        "device_compute": device["Kernel"],
        "exposed_communication": device["nccl"],
        "exposed_copy": device["Memcpy"] + device["Memset"],
        "input_wait": host["Dataloader"],
        "launch_and_host": [r for kind, some in host.items() if kind != "ProfileStep" for r in some],
    }
    ranges["launch_and_host"] += device["CudaRuntime"]
    table = perfkit_core.summarize(trace, "partition", by="step")
    for (_, row), step in zip(table.iterrows(), sorted(host["ProfileStep"]), strict=True):
        assert {name: row[f"{name}_ns"] for name in [*ranges, "idle"]} == first_of(ranges, ranges, step)


def test_the_phases_of_a_step_equal_torchs_events(torch_run: tuple[Trace, list[Any]]) -> None:
    """In torch's own event list, forward begins at the first aten::linear, and backward ends with the last backward
    node."""
    trace, events = torch_run
    ranges = torch_ranges(events)
    table = perfkit_core.summarize(trace, "step_trace", by="step")
    for (_, row), (start, end) in zip(table.iterrows(), sorted(ranges["step"]), strict=True):
        inside = [e for e in events if start <= round(e.time_range.start * 1000) < end]
        first = min(round(e.time_range.start * 1000) for e in inside if e.name == "aten::linear")
        last = max(round(e.time_range.end * 1000) for e in inside if e.name.startswith("autograd::engine::evaluate"))
        assert row[["interval_ns", "forward_backward_ns", "tail_ns"]].tolist() == [
            first - start, last - first, end - last,
        ]  # fmt: skip


def test_the_phases_of_a_step_equal_paddles_ranges(paddle_run: tuple[Trace, Any]) -> None:
    trace, result = paddle_run
    ranges = paddle_ranges(result)
    table = perfkit_core.summarize(trace, "step_trace", by="step")
    for (_, row), (start, end) in zip(table.iterrows(), sorted(ranges["ProfileStep"]), strict=False):
        first = min(s for s, _ in clipped(ranges["Forward"], (start, end)))
        last = max(e for _, e in clipped(ranges["Backward"], (start, end)))
        assert row[["interval_ns", "forward_backward_ns", "tail_ns"]].tolist() == [
            first - start, last - first, end - last,
        ]  # fmt: skip


def test_the_times_of_phases_equal_the_spans_of_a_torch_file(dlrm: tuple[Trace, File]) -> None:
    """Optimizer and loader times are spans in the file. A call of the optimizer is an update: zero_grad is none. Device
    time is the union of the work launched inside the optimizer."""
    trace, file = dlrm
    table = perfkit_core.summarize(trace, "model").set_index("phase")
    spans = {name: [e for e in file.events if e["name"].startswith(start)] for name, start in
             (("optimizer", "Optimizer."), ("dataloader", "enumerate(DataLoader)"))}  # fmt: skip
    for phase, found in spans.items():
        assert table.loc[phase, "calls"] == len([e for e in found if ".zero_grad#" not in e["name"]])
        assert table.loc[phase, "total_cpu_ns"] == sum(end - start for start, end in map(range_of, found))
    assert table.loc["optimizer", "calls"] == len(spans["optimizer"]) / 2 == 1
    assert table.loc["optimizer", "min_cpu_ns"] == table.loc["optimizer", "total_cpu_ns"]
    launches = {e["args"].get("correlation"): e for e in file.events if e["cat"] in ("cuda_runtime", "Runtime")}
    work = [event for event in file.events if event["cat"] in (*KERNELS, *COPIES)]
    launched = [event for event in work if any(is_inside(launches[event["args"]["correlation"]], span)
                                               for span in spans["optimizer"])]  # fmt: skip
    assert table.loc["optimizer", "total_device_ns"] == covered(map(range_of, launched)) > 0
    assert table.loc["step", "total_device_ns"] == covered(map(range_of, work))


def test_communication_on_another_thread_equals_torchs_events(torch: Any, tmp_path: Path) -> None:
    """In a live run with gloo, the communication runs on another thread. Its times come from torch's own event list."""
    dist, events = torch.distributed, []
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        handler = perfkit_torch.trace_handler(tmp_path, also=[lambda profiler: events.extend(profiler.events())])
        values = torch.ones(1_000_000)
        with torch.profiler.profile(on_trace_ready=handler):
            work = dist.all_reduce(values, async_op=True)
            torch.ones(64, 64) @ torch.ones(64, 64)
            work.wait()
    finally:
        dist.destroy_process_group()
    ranges = torch_ranges(events)
    table = perfkit_core.summarize(perfkit_core.load(tmp_path), "distributed").set_index("part")
    exchange = covered(ranges["communication"])
    assert table.loc["communication", "time_ns"] == exchange > 0
    hidden = exchange + covered(ranges["operator"]) - covered(ranges["communication"] + ranges["operator"])
    assert table.loc["overlap", "time_ns"] == hidden
    assert table.loc["exposed_communication", "time_ns"] == exchange - hidden


def test_communication_equals_the_nccl_kernels_of_a_torch_file(dlrm: tuple[Trace, File]) -> None:
    trace, file = dlrm
    talk = clipped(communication(file), file.step)
    kernels = file.ranges(lambda event: event.get("cat") in KERNELS and "nccl" not in event["name"])
    compute = clipped(kernels, file.step)
    table = perfkit_core.summarize(trace, "distributed").set_index("part")
    both = covered(talk + compute)
    assert table["time_ns"].to_dict() == {
        "step": file.step[1] - file.step[0],
        "communication": covered(talk),
        "computation": covered(compute),
        "overlap": covered(talk) + covered(compute) - both,
        "exposed_communication": both - covered(compute),
    }
    assert table.loc["communication", "device_calls"] == 8
