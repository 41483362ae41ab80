"""Operators, kernels, memory manipulation and labels in both frameworks. Data that a CPU records is recorded live. All
other data comes from GPU recordings."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core import load, summarize
from perfkit_core.trace.model.trace import Trace

Record = Callable[..., Trace]
STEPS = {"torch": 2, "paddle": 3}
"""Recorded steps. Each is in a user label."""


@pytest.fixture(scope="module")
def record_torch(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Return a function that records a small training with options of the profiler. Equal options are recorded once."""
    from perfkit_torch import trace_handler
    from tests.support.torch_models import train

    @functools.cache
    def record(**options: Any) -> Trace:
        handler = trace_handler(tmp_path_factory.mktemp("torch"))
        train("mlp", handler, **options)
        return load(handler.written[0])

    return record


@pytest.fixture(scope="module")
def record_paddle(paddle: Any, tmp_path_factory: pytest.TempPathFactory) -> Record:
    from perfkit_paddle import trace_handler

    @functools.cache
    def record(**options: Any) -> Trace:
        net = paddle.nn.Sequential(paddle.nn.Linear(8, 16), paddle.nn.ReLU(), paddle.nn.Linear(16, 4))
        optimizer = paddle.optimizer.SGD(parameters=net.parameters())
        run = tmp_path_factory.mktemp("paddle")
        with paddle.profiler.Profiler(scheduler=(2, 5), on_trace_ready=trace_handler(run), **options) as profiler:
            for _ in range(5):
                with paddle.profiler.RecordEvent("iteration"):
                    net(paddle.randn([4, 8])).square().sum().backward()
                    optimizer.step()
                    optimizer.clear_grad()
                profiler.step()
        return load(run)

    return record


@pytest.fixture
def recorded(request: pytest.FixtureRequest, framework: str) -> Trace:
    """Return a recording without options."""
    trace: Trace = request.getfixturevalue(f"record_{framework}")()
    return trace


@pytest.fixture(scope="module")
def on_device(traces: Path, framework: str) -> Trace:
    """Return a recording of a GPU."""
    return load(
        traces / {"torch": "torch/h100-bert-small.json.gz", "paddle": "paddle/gpu-synthetic/gpu1.pb"}[framework]
    )


def by_name(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_index("name")


def test_groups_of_threads_and_steps_sum_to_all_calls(recorded: Trace) -> None:
    groups = summarize(recorded, "operators", by=["thread", "phase", "step"])
    assert (
        groups.groupby("name")["calls"].sum().to_dict() == by_name(summarize(recorded, "operators"))["calls"].to_dict()
    )
    assert "backward" in set(groups["phase"])


def test_torch_groups_by_shape_and_stack(record_torch: Record) -> None:
    trace = record_torch(record_shapes=True, with_stack=True)
    shapes = summarize(trace, "operators", by="shape", pattern="^aten::addmm$")
    assert set(shapes["shapes"]) == {"[[32],[8,16],[16,32],[],[]]", "[[4],[8,32],[32,4],[],[]]"}
    stacks = summarize(trace, "operators", by="stack=3", pattern="^aten::addmm$")
    assert stacks["stack"].str.contains("linear").all()


def test_paddle_records_no_shapes_and_no_stacks(record_paddle: Record) -> None:
    """Paddle's profiler records none in dygraph mode, even if requested."""
    trace = record_paddle(record_shapes=True)
    assert summarize(trace, "operators", by="shape")["shapes"].isna().all()
    assert summarize(trace, "operators", by="stack")["stack"].isna().all()


def test_memory_of_torch_operators(record_torch: Record) -> None:
    """The output of the first layer is 8 × 32 floats."""
    table = summarize(record_torch(profile_memory=True, record_shapes=True), "operators", by="shape")
    first = table[(table["name"] == "aten::addmm") & table["shapes"].str.startswith("[[32]")]
    assert first["total_cpu_bytes"].tolist() == [2 * 8 * 32 * 4]
    assert (table["total_device_bytes"] == 0).all()


def test_memory_of_paddle_operators(record_paddle: Record) -> None:
    """The expected numbers are computed by adding each memory event to all events around it."""
    trace = record_paddle(profile_memory=True)
    events = trace.to_pandas()
    expected: dict[str, int] = defaultdict(int)
    for event in events[events["kind"] == "memory"].to_dict("records"):
        row, around = event["parent"], set()
        while row >= 0 and not event["category"].startswith("Reserved"):
            around.add(events["name"][row])
            row = events["parent"][row]
        for name in around:
            expected[name] += event["bytes"]
    table = by_name(summarize(trace, "operators"))["total_cpu_bytes"]
    assert {name: expected[name] for name in table.index} == table.to_dict()
    assert table["square dygraph"] >= 3 * 4 * 4 * 4  # the squared output of three steps, in floats of 4 bytes


def test_memory_and_flops_that_were_not_recorded_are_unknown(recorded: Trace) -> None:
    table = summarize(recorded, "operators")
    assert table["total_cpu_bytes"].isna().all()
    assert table["flops"].isna().all()


def test_user_labels_are_rows_and_scopes(recorded: Trace, framework: str) -> None:
    (row,) = summarize(recorded, "annotations", kind="^annotation$").to_dict("records")
    assert (row["name"], row["kind"], row["calls"]) == ("iteration", "annotation", STEPS[framework])
    assert 0 < row["total_cpu_ratio"] <= 1
    inside = summarize(recorded, "operators", by="scope")
    mine = inside[inside["scope"] == "iteration"]
    assert 0 < mine["self_cpu_ns"].sum() <= row["total_cpu_ns"]


def test_flops_of_torch_operators(record_torch: Record) -> None:
    """torch counts 2·m·k·n for a product: 8 × 16 × 32 and 8 × 32 × 4, in two steps."""
    table = by_name(summarize(record_torch(record_shapes=True, with_flops=True), "operators"))
    assert table.loc["aten::addmm", "flops"] == 2 * 2 * (8 * 16 * 32 + 8 * 32 * 4)
    assert pd.isna(table.loc["aten::linear", "flops"])


def test_paddle_records_no_flops(record_paddle: Record) -> None:
    """Paddle's profiler records none, even if requested, and its own table prints 0."""
    assert summarize(record_paddle(with_flops=True), "operators")["flops"].isna().all()


def test_the_operator_tree_contains_the_kernels(on_device: Trace, framework: str) -> None:
    parent, leaf = {"torch": ("aten::linear", "Kernel2|gemm"), "paddle": ("conv2d dygraph", "scudnn")}[framework]
    table = summarize(on_device, "operator_tree", start=f"^{parent}$")
    assert table.iloc[0]["name"] == parent
    assert set(table["depth"]) >= {0, 1}
    kernels = table[(table["kind"] == "kernel") & table["name"].str.contains(leaf)]
    assert kernels["total_device_ns"].sum() == table.iloc[0]["total_device_ns"] > 0


def test_kernels_by_operator_and_launch(on_device: Trace, framework: str) -> None:
    operator = {"torch": "addmm", "paddle": "conv2d"}[framework]
    kernels = summarize(on_device, "kernels")
    table = summarize(on_device, "kernels", by=["operator", "launch"])
    assert table["total_device_ns"].sum() == kernels["total_device_ns"].sum() > 0
    assert kernels["ratio"].sum() == pytest.approx(1)
    launches = summarize(on_device, "kernels", by=["operator", "launch"], show=operator, limit=15)
    assert len(launches)
    assert launches["grid"].str.fullmatch(r"\d+,\d+,\d+").all()
    assert (launches["registers"] > 0).all()


@pytest.mark.parametrize("framework", ["torch"], indirect=True)
def test_copies_of_torch(on_device: Trace) -> None:
    """The recording contains one copy of 2,240 ns."""
    row = by_name(summarize(on_device, "memory_manipulation")).loc["cudaMemcpyAsync"]
    assert (row["kind"], row["calls"], row["total_device_ns"]) == ("runtime", 1, 2240)
    assert summarize(on_device, "memcpy")["total_device_ns"].sum() == 2240


@pytest.mark.parametrize("framework", ["paddle"], indirect=True)
def test_copies_of_paddle(on_device: Trace) -> None:
    row = by_name(summarize(on_device, "memory_manipulation", native=True)).loc["GpuMemcpyAsync:CPU->GPU"]
    assert (row["calls"], row["total_device_ns"]) == (3, 12600)


def test_kinds_of_operators_sum_to_all_self_time(recorded: Trace, framework: str) -> None:
    kind, operator = {"torch": ("matmul", "aten::addmm"), "paddle": ("square", "square dygraph")}[framework]
    table = summarize(recorded, "operator_kinds", start=f"^{kind}$")
    assert table.iloc[0]["name"] == kind
    assert operator in set(table["name"][1:])
    assert table["self_cpu_ns"].iloc[0] == table["self_cpu_ns"].iloc[1:].sum()
    shares = summarize(recorded, "operator_kinds", depth=0)["self_cpu_ratio"].dropna()
    assert shares.sum() == pytest.approx(1)


def test_search_by_a_part_of_the_name_or_by_the_canonical_name(recorded: Trace, framework: str) -> None:
    part, name, op_name = {
        "torch": ("addm", "aten::addmm", "matmul"), "paddle": ("quare", "square dygraph", "square"),
    }[framework]  # fmt: skip
    by_calls = summarize(recorded, "operators", sort="calls")
    assert by_calls["calls"].is_monotonic_decreasing
    hits = summarize(recorded, "operators", show=part)
    assert name in set(hits["name"])
    assert hits["name"].str.contains(part).all()
    canonical = summarize(recorded, "operators", show=f"^{op_name}$")
    assert set(canonical["op_name"]) == {op_name}
    assert set(canonical["self_cpu_ns"]) <= set(by_calls["self_cpu_ns"])
    counted = summarize(recorded, "operators", pattern=part)
    assert counted["self_cpu_ratio"].sum() == pytest.approx(1)
    assert len(summarize(recorded, "operators", limit=2)) == 2
