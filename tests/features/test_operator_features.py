"""Operators, kernels, memory manipulation and labels in both frameworks, with the codes of features in the test names.
Data that a CPU records is recorded live. All other data comes from GPU recordings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core import load, summarize
from perfkit_core.trace.model.trace import Trace

Record = Callable[..., Trace]


@pytest.fixture
def torch_run(torch: Any, tmp_path: Path) -> Record:
    """Record two steps of a small training, each in a user label."""
    from perfkit_torch import trace_handler
    from tests.support.torch_models import train

    def record(**options: Any) -> Trace:
        handler = trace_handler(tmp_path)
        train("mlp", handler, **options)
        return load(handler.written[0])

    return record


@pytest.fixture
def paddle_run(paddle: Any, tmp_path: Path) -> Record:
    """Record three steps of a small training, each in a user label."""
    from perfkit_paddle import trace_handler

    def record(**options: Any) -> Trace:
        net = paddle.nn.Sequential(paddle.nn.Linear(8, 16), paddle.nn.ReLU(), paddle.nn.Linear(16, 4))
        optimizer = paddle.optimizer.SGD(parameters=net.parameters())
        handler = trace_handler(tmp_path)
        with paddle.profiler.Profiler(scheduler=(2, 5), on_trace_ready=handler, **options) as profiler:
            for _ in range(5):
                with paddle.profiler.RecordEvent("iteration"):
                    net(paddle.randn([4, 8])).square().sum().backward()
                    optimizer.step()
                    optimizer.clear_grad()
                profiler.step()
        return load(tmp_path)

    return record


@pytest.fixture(scope="module")
def torch_gpu(traces: Path) -> Trace:
    return load(traces / "torch" / "h100-bert-small.json.gz")


@pytest.fixture(scope="module")
def paddle_gpu(traces: Path) -> Trace:
    return load(traces / "paddle" / "gpu-synthetic" / "gpu1.pb")


def by_name(table: pd.DataFrame) -> pd.DataFrame:
    return table.set_index("name")


# B1: the operator table. tests/torch and tests/paddle compare it with the profilers' own tables, cell by cell.


def test_B1_operator_table_torch(torch_run: Record) -> None:
    """Two steps of two linear layers have four calls of addmm, and their gradients."""
    table = by_name(summarize(torch_run(), "operators"))
    assert table.loc["aten::addmm", "calls"] == 4
    assert table.loc["aten::linear", "total_cpu_ns"] > table.loc["aten::addmm", "total_cpu_ns"]
    assert table.loc["aten::addmm", "op_name"] == "matmul"


def test_B1_operator_table_paddle(paddle_run: Record) -> None:
    """There are three steps of two linear layers. Depending on Paddle's version, a linear layer is one operator or
    two."""
    table = by_name(summarize(paddle_run(), "operators"))
    linear = table[table.index.str.fullmatch("(linear|matmul) dygraph")]
    assert linear["calls"].sum() == 6
    assert (table["total_cpu_ns"] >= table["self_cpu_ns"]).all()


# B2: grouped by shape, stack, thread, module, overload, …


def test_B2_groupings_torch(torch_run: Record) -> None:
    trace = torch_run(record_shapes=True, with_stack=True)
    shapes = summarize(trace, "operators", by="shape", pattern="^aten::addmm$")
    assert set(shapes["shapes"]) == {"[[32],[8,16],[16,32],[],[]]", "[[4],[8,32],[32,4],[],[]]"}
    stacks = summarize(trace, "operators", by="stack=3", pattern="^aten::addmm$")
    assert stacks["stack"].str.contains("linear").all()
    both = summarize(trace, "operators", by=["thread", "step"])
    assert both.groupby("name")["calls"].sum().to_dict() == by_name(summarize(trace, "operators"))["calls"].to_dict()


def test_B2_groupings_paddle(paddle_run: Record) -> None:
    """Groupings are by thread, phase and step. In dygraph mode, Paddle's profiler records no shapes and no stacks."""
    trace = paddle_run(record_shapes=True)
    both = summarize(trace, "operators", by=["thread", "phase", "step"])
    assert both.groupby("name")["calls"].sum().to_dict() == by_name(summarize(trace, "operators"))["calls"].to_dict()
    assert "backward" in set(both["phase"])
    assert summarize(trace, "operators", by="shape")["shapes"].isna().all()
    assert summarize(trace, "operators", by="stack")["stack"].isna().all()


# B3: memory


def test_B3_memory_torch(torch_run: Record) -> None:
    """The output of the first layer is 8 × 32 floats."""
    table = summarize(torch_run(profile_memory=True, record_shapes=True), "operators", by="shape")
    first = table[(table["name"] == "aten::addmm") & table["shapes"].str.startswith("[[32]")]
    assert first["total_cpu_bytes"].tolist() == [2 * 8 * 32 * 4]
    assert (table["total_device_bytes"] == 0).all()


def test_B3_memory_paddle(paddle_run: Record) -> None:
    """The expected numbers are computed by adding each memory event to all events around it."""
    trace = paddle_run(profile_memory=True)
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


def test_B3_memory_that_was_not_recorded_is_unknown(torch_run: Record) -> None:
    assert summarize(torch_run(), "operators")["total_cpu_bytes"].isna().all()


# B4: user labels as rows and as scopes


def _labels(trace: Trace, steps: int) -> None:
    row = by_name(summarize(trace, "annotations")).loc["iteration"]
    assert (row["kind"], row["calls"]) == ("annotation", steps)
    inside = summarize(trace, "operators", by="scope")
    mine = inside[inside["scope"] == "iteration"]
    assert 0 < mine["self_cpu_ns"].sum() <= row["total_cpu_ns"]


def test_B4_labels_torch(torch_run: Record) -> None:
    _labels(torch_run(), 2)


def test_B4_labels_paddle(paddle_run: Record) -> None:
    _labels(paddle_run(), 3)


# B8: FLOPs


def test_B8_flops_torch(torch_run: Record) -> None:
    """torch counts 2·m·k·n for a product: 8 × 16 × 32 and 8 × 32 × 4, in two steps."""
    table = by_name(summarize(torch_run(record_shapes=True, with_flops=True), "operators"))
    assert table.loc["aten::addmm", "flops"] == 2 * 2 * (8 * 16 * 32 + 8 * 32 * 4)
    assert pd.isna(table.loc["aten::linear", "flops"])


def test_B8_flops_paddle(paddle_run: Record) -> None:
    """Paddle's profiler records no FLOPs, even if requested, and its own table prints 0. perfkit shows them as
    unknown."""
    assert summarize(paddle_run(with_flops=True), "operators")["flops"].isna().all()


# C6: operators with children and kernels


def _tree(trace: Trace, parent: str, leaf: str) -> None:
    table = summarize(trace, "operator_tree", start=f"^{parent}$")
    assert table.iloc[0]["name"] == parent
    assert set(table["depth"]) >= {0, 1}
    kernels = table[(table["kind"] == "kernel") & table["name"].str.contains(leaf)]
    assert kernels["total_device_ns"].sum() == table.iloc[0]["total_device_ns"] > 0


def test_C6_operator_summary_torch(torch_gpu: Trace) -> None:
    _tree(torch_gpu, "aten::linear", "Kernel2|gemm")


def test_C6_operator_summary_paddle(paddle_gpu: Trace) -> None:
    _tree(paddle_gpu, "conv2d dygraph", "scudnn")


# C7 and E6: kernels, by operator and launch


def _kernels(trace: Trace, operator: str) -> None:
    whole = summarize(trace, "kernels")
    table = summarize(trace, "kernels", by=["operator", "launch"])
    assert table["total_device_ns"].sum() == whole["total_device_ns"].sum() > 0
    assert whole["ratio"].sum() == pytest.approx(1)
    found = summarize(trace, "kernels", by=["operator", "launch"], show=operator, limit=15)
    assert len(found)
    assert found["grid"].str.fullmatch(r"\d+,\d+,\d+").all()
    assert (found["registers"] > 0).all()


def test_C7_E6_kernels_torch(torch_gpu: Trace) -> None:
    _kernels(torch_gpu, "addmm")


def test_C7_E6_kernels_paddle(paddle_gpu: Trace) -> None:
    _kernels(paddle_gpu, "conv2d")


# C8: memory manipulation


def test_C8_memory_manipulation_torch(torch_gpu: Trace) -> None:
    """The recording contains one copy of 2,240 ns."""
    row = by_name(summarize(torch_gpu, "memory_manipulation")).loc["cudaMemcpyAsync"]
    assert (row["kind"], row["calls"], row["total_device_ns"]) == ("runtime", 1, 2240)
    assert summarize(torch_gpu, "memcpy")["total_device_ns"].sum() == 2240


def test_C8_memory_manipulation_paddle(paddle_gpu: Trace) -> None:
    row = by_name(summarize(paddle_gpu, "memory_manipulation", native=True)).loc["GpuMemcpyAsync:CPU->GPU"]
    assert (row["calls"], row["total_device_ns"]) == (3, 12600)


# C9: UserDefined


def test_C9_user_defined_torch(torch_run: Record) -> None:
    (row,) = summarize(torch_run(), "annotations", kind="^annotation$").to_dict("records")
    assert (row["name"], row["calls"]) == ("iteration", 2)
    assert 0 < row["total_cpu_ratio"] <= 1


def test_C9_user_defined_paddle(paddle_run: Record) -> None:
    (row,) = summarize(paddle_run(), "annotations", kind="^annotation$").to_dict("records")
    assert (row["name"], row["calls"]) == ("iteration", 3)
    assert 0 < row["total_cpu_ratio"] <= 1


# E4: kinds of operators; E5: search in the operator table


def _kinds(trace: Trace, kind: str, operator: str) -> None:
    table = summarize(trace, "operator_kinds", start=f"^{kind}$")
    assert table.iloc[0]["name"] == kind
    assert operator in set(table["name"][1:])
    assert table["self_cpu_ns"].iloc[0] == table["self_cpu_ns"].iloc[1:].sum()
    shares = summarize(trace, "operator_kinds", depth=0)["self_cpu_ratio"].dropna()
    assert shares.sum() == pytest.approx(1)


def test_E4_operator_kinds_torch(torch_run: Record) -> None:
    _kinds(torch_run(), "matmul", "aten::addmm")


def test_E4_operator_kinds_paddle(paddle_run: Record) -> None:
    _kinds(paddle_run(), "square", "square dygraph")


def _search(trace: Trace, part: str, name: str, op_name: str) -> None:
    """Search operators by a part of their name and by their canonical name, sort them, and limit the number of rows."""
    whole = summarize(trace, "operators", sort="calls")
    assert whole["calls"].is_monotonic_decreasing
    found = summarize(trace, "operators", show=part)
    assert name in set(found["name"])
    assert found["name"].str.contains(part).all()
    canonical = summarize(trace, "operators", show=f"^{op_name}$")
    assert set(canonical["op_name"]) == {op_name}
    assert set(canonical["self_cpu_ns"]) <= set(whole["self_cpu_ns"])
    counted = summarize(trace, "operators", pattern=part)
    assert counted["self_cpu_ratio"].sum() == pytest.approx(1)
    assert len(summarize(trace, "operators", limit=2)) == 2


def test_E5_search_torch(torch_run: Record) -> None:
    _search(torch_run(), "addm", "aten::addmm", "matmul")


def test_E5_search_paddle(paddle_run: Record) -> None:
    _search(paddle_run(), "quare", "square dygraph", "square")
