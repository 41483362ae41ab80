"""The division of step time in both frameworks.

The expected numbers come from the profilers themselves: from torch's event list or file, and from Paddle's node trees.
They are computed from ranges of nanoseconds, without perfkit.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
    launched_below,
    outermost_phases,
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
    _averages(trace)


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
    _averages(trace)


def _averages(trace: Trace) -> None:
    steps = perfkit_core.summarize(trace, "step_trace", by="step")
    parts = perfkit_core.summarize(trace, "step_trace").set_index("part")
    for part, row in parts.iterrows():
        times = steps[f"{part}_ns"]
        assert row[["total_ns", "min_ns", "max_ns"]].tolist() == [times.sum(), times.min(), times.max()]
        assert abs(row["avg_ns"] - times.mean()) <= 0.5
    average = perfkit_core.summarize(trace, "step_trace", average=True).set_index("part")
    assert average["total_ns"].tolist() == parts["avg_ns"].tolist()
    assert parts["total_ns"].sum() == steps["dur_ns"].sum()


def test_a_step_that_paddle_opens_after_the_loop_is_no_step(paddle_run: tuple[Trace, Any]) -> None:
    """Paddle opens a step that does not take place. It is not reported as a step or as a partial step."""
    trace, result = paddle_run
    opened = len(paddle_ranges(result)["ProfileStep"])
    assert len(perfkit_core.summarize(trace, "step_trace", by="step")) == RECORDED
    found = [finding.code for finding in trace.quality]
    assert ("empty-last-step" in found) == (opened > RECORDED)
    assert "partial-step" not in found


def test_a_step_that_torch_opens_after_the_loop_is_no_step(traces: Path) -> None:
    """The second step in the file has no events, because torch opened it after the loop had ended."""
    trace = perfkit_core.load(traces / "torch" / "mi250-minitoy-train.json.gz")
    host = trace.events.filter(trace.host)["name"].to_pylist()
    assert len([name for name in host if name.startswith("ProfilerStep#")]) == 2
    assert len(perfkit_core.summarize(trace, "step_trace", by="step")) == 1
    assert "empty-last-step" in [finding.code for finding in trace.quality]
    assert "partial-step" not in [finding.code for finding in trace.quality]


def test_the_wait_for_input_equals_torchs_ranges(torch_run: tuple[Trace, list[Any]]) -> None:
    trace, events = torch_run
    ranges = torch_ranges(events)
    table = perfkit_core.summarize(trace, "input_pipeline")
    for (_, row), step in zip(table.iterrows(), sorted(ranges["step"]), strict=True):
        assert row["input_wait_ns"] == covered(clipped(ranges["input"], step)) > 0
        assert row["input_ratio"] == pytest.approx(row["input_wait_ns"] / (step[1] - step[0]))
    assert set(table["loader"]) == {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"}


def test_the_wait_for_input_equals_paddles_ranges(paddle_run: tuple[Trace, Any]) -> None:
    trace, result = paddle_run
    ranges = paddle_ranges(result)
    table = perfkit_core.summarize(trace, "input_pipeline")
    for (_, row), step in zip(table.iterrows(), sorted(ranges["ProfileStep"]), strict=False):
        assert row["input_wait_ns"] == covered(clipped(ranges["Dataloader"], step)) > 0
    assert set(table["loader"]) == {"_DataLoaderIterSingleProcess"}
    assert set(table["loads"]) == {1}


def test_loader_processes_shorten_the_wait_for_input(traces: Path) -> None:
    """The pair is a real training. With four worker processes, the wait falls from a third of the step to almost
    nothing."""
    pair = [
        perfkit_core.summarize(traces / "torch" / "pairs" / f"resnet50-workers{n}.json.gz", "input_pipeline")
        for n in (0, 4)
    ]
    assert [set(table["loader"].str.extract(r"_(\w+)DataLoaderIter")[0]) for table in pair] == [
        {"SingleProcess"}, {"MultiProcessing"},
    ]  # fmt: skip
    assert pair[0]["input_ratio"].min() > 0.3
    assert pair[1]["input_ratio"].max() < 0.05
    for table in pair:
        assert set(table["copied_bytes"] // 2**20) == {18}  # 32 images of 3 × 224 × 224 floats
        assert (table["hidden_copy_ns"] <= table["copy_ns"]).all()


def test_input_copies_equal_those_of_paddles_tree(synthetic: tuple[Trace, Any]) -> None:
    """Paddle's own tree has one copy per step. Neither framework records workers and queues."""
    trace, result = synthetic
    table = perfkit_core.summarize(trace, "input_pipeline")
    copies = device_ranges(result)["Memcpy"]
    assert table["copies"].sum() == len(copies)
    assert table["copy_ns"].sum() == covered(copies)


def test_the_use_of_the_device_equals_the_kernels_of_a_torch_file(dlrm: tuple[Trace, File]) -> None:
    trace, file = dlrm
    (row,) = perfkit_core.summarize(trace, "device").to_dict("records")
    kernels = file.category(*KERNELS)
    assert (row["kernels"], row["busy_ns"]) == (len(kernels), covered(kernels))
    assert row["span_ns"] == file.step[1] - file.step[0]
    assert row["utilisation_ratio"] == pytest.approx(covered(kernels) / row["span_ns"])
    assert row["busy_in_steps_ratio"] == pytest.approx(covered(clipped(kernels, file.step)) / row["span_ns"])


def test_the_use_of_the_device_equals_paddles_kernels_and_cpu_utilisation(
    synthetic: tuple[Trace, Any], paddle_run: tuple[Trace, Any]
) -> None:
    """Kernels come from every launch in the tree, and the CPU utilisation is the number that Paddle measured."""
    trace, result = synthetic
    found = device_ranges(result)
    row = perfkit_core.summarize(trace, "device").set_index("device").loc["cuda:0"]
    assert row["busy_ns"] == covered(found["Kernel"] + found["nccl"])
    live, native = paddle_run
    cpu = perfkit_core.summarize(live, "device").set_index("device")["utilisation_ratio"]
    for scope in ("Process", "System"):
        assert cpu[f"cpu ({scope.lower()})"] == float(native.get_extra_info()[f"{scope} Cpu Utilization"])


def test_the_overview_equals_torchs_ranges(torch_run: tuple[Trace, list[Any]]) -> None:
    trace, events = torch_run
    ranges = torch_ranges(events)
    table = perfkit_core.summarize(trace, "overview").set_index("kind")
    names = {"step": "step", "input": "dataloader", "optimizer": "optimizer", "operator": "operator"}
    assert table["time_ns"].to_dict() == {names[kind]: covered(some) for kind, some in ranges.items()}
    whole = covered(ranges["step"])
    assert table.loc["operator", "ratio"] == pytest.approx(covered(ranges["operator"]) / whole)


def test_the_overview_equals_paddles_ranges(paddle_run: tuple[Trace, Any]) -> None:
    trace, result = paddle_run
    ranges = paddle_ranges(result)
    ranges["Operator"] += ranges.pop("Loading", [])
    table = perfkit_core.summarize(trace, "overview", by="category").set_index("category")
    assert table["time_ns"].to_dict() == {kind: covered(some) for kind, some in ranges.items()}
    assert table["calls"].to_dict() == {kind: len(some) for kind, some in ranges.items()}


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


def test_the_times_of_phases_equal_the_spans_of_paddles_tree(synthetic: tuple[Trace, Any]) -> None:
    """Host times are spans of Paddle's tree. Device times are unions of the work launched below these spans, for each
    step."""
    trace, result = synthetic
    table = perfkit_core.summarize(trace, "model").set_index("phase")
    found: dict[str, list[Any]] = defaultdict(list)
    for root in result.get_data().values():
        outermost_phases(root, found)
    for name, phase in (("Forward", "forward"), ("Backward", "backward"), ("Optimization", "optimizer")):
        assert table.loc[phase, "calls"] == len(found[name])
        assert table.loc[phase, "total_cpu_ns"] == sum(node.end_ns - node.start_ns for node in found[name])
        assert table.loc[phase, "total_device_ns"] == sum(covered(launched_below(node)) for node in found[name])


def test_work_without_a_launch_has_its_own_row(traces: Path) -> None:
    path = traces / "torch" / "dlrm-8xv100" / "rank1.json"
    trace, file = perfkit_core.load(path), File(path)
    launches = {
        event["args"].get("correlation") for event in file.events if event["cat"] in ("cuda_runtime", "Runtime")
    }
    lost = [event for event in file.events if event["cat"] in (*KERNELS, *COPIES)
            and event["args"]["correlation"] not in launches]  # fmt: skip
    assert len(lost) == 64
    row = perfkit_core.summarize(trace, "model").set_index("phase").loc["unlaunched"]
    assert row["total_device_ns"] == covered(map(range_of, lost))
    assert pd.isna(row["calls"])
    assert "device-events-without-launch" in [finding.code for finding in trace.quality]


def test_paddle_files_have_no_row_for_work_without_a_launch(traces: Path) -> None:
    """Paddle's tree contains no device work without a runtime call, so the table has no row for such work."""
    for path in sorted((traces / "paddle" / "gpu-synthetic").glob("gpu1*.[pj]*")):
        if path.is_file():
            assert "unlaunched" not in set(perfkit_core.summarize(path, "model")["phase"])


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


def test_communication_equals_the_nccl_kernels_of_paddles_tree(synthetic: tuple[Trace, Any]) -> None:
    """Three communication events launch the NCCL kernels of the tree. The kernels, not the events, count as
    communication."""
    trace, result = synthetic
    device = device_ranges(result)
    steps = paddle_ranges(result)["ProfileStep"]
    talk, compute = ([r for step in steps for r in clipped(device[name], step)] for name in ("nccl", "Kernel"))
    table = perfkit_core.summarize(trace, "distributed").set_index("part")
    both = covered(talk + compute)
    assert np.array_equal(
        table.loc[["communication", "computation", "exposed_communication"], "time_ns"],
        [covered(talk), covered(compute), both - covered(compute)],
    )
    assert table.loc["communication", ["host_calls", "device_calls"]].tolist() == [3, 3]


def test_a_run_of_one_process_has_no_communication(paddle_run: tuple[Trace, Any]) -> None:
    from perfkit_core.views.communication.distributed import VIEW

    assert perfkit_core.summarize(paddle_run[0], "distributed").empty
    assert str(VIEW.explain_empty(paddle_run[0])) == "no communication between processes was recorded"
