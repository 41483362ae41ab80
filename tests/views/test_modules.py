"""The view of layers over a small trace, with numbers computed by hand, and over all real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import perfkit_core as perfkit
from perfkit_core.base.algorithms import nesting
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.assembly.labels import backward_label, module_label
from perfkit_core.trace.model.architecture import Architecture, Layer, Parameter, to_extra
from perfkit_core.trace.model.schema import DEVICE_WORK, OPERATOR_KINDS
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views import modules
from tests.support.events import device, host, trace


def step(number: int, start: int) -> list[dict[str, Any]]:
    """Return a step of 1,000 ns. Its model has a layer a with one kernel, a layer b.c inside a list b, and an operator
    outside the layers. A loss, the backward pass of both layers, and one kernel without a launch follow."""
    layer = {"phase": "forward"}
    rows = [
        host(f"step {number}", "step", 0, 1000, step=number),
        host(module_label("", "Net"), "annotation", 10, 300, **layer),
        host("own", "operator", 20, 30),
        host(module_label("a", "Linear"), "annotation", 60, 100, **layer),
        host("mm", "operator", 70, 80, flops=None),
        host("copy", "operator", 80, 20),
        host("launch", "runtime", 110, 10, correlation=10 * number + 1),
        host(module_label("b.c", "Conv"), "annotation", 200, 100, **layer),
        host("conv", "operator", 210, 50),
        host("loss", "operator", 320, 40),
        host("ConvBackward", "operator", 400, 60, phase="backward"),
        host(backward_label("b.c", "Conv"), "annotation", 410, 5),
        host("MmBackward", "operator", 500, 90, phase="backward"),
        host(backward_label("a", "Linear"), "annotation", 505, 2),
        host("launch", "runtime", 520, 10, correlation=10 * number + 2),
        device("k", "kernel", 700, 50, correlation=10 * number + 1),
        device("k_bwd", "kernel", 800, 70, correlation=10 * number + 2),
        device("lost", "kernel", 900, 7),
        host("[memory]", "memory", 75, 0, bytes=100),
        host("[memory]", "memory", 85, 0, bytes=24),
        host("[memory]", "memory", 90, 0, bytes=-64),
        host("[memory]", "memory", 330, 0, bytes=8),
    ]
    return [{**row, "start_ns": row["start_ns"] + start} for row in rows]


def architecture() -> Architecture:
    weight = Parameter(name="weight", shape=(3, 4), dtype="float32", bytes=48)
    kernel = Parameter(name="weight", shape=(2, 2), dtype="float16", bytes=8)
    return Architecture("Net", "fw", (
        Layer(path="", class_name="Net", calls=2),
        Layer(path="a", class_name="Linear", parameters=(weight,), calls=2, flops=2000, backward_flops=4000),
        Layer(path="b", class_name="List"),
        Layer(path="b.c", class_name="Conv", parameters=(kernel,), calls=2, flops=600, backward_flops=None),
        Layer(path="b.d", class_name="Unused", parameters=(kernel,)),
    ))  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace([*step(0, 0), *step(1, 1000)])


@pytest.fixture(scope="module")
def kept(small: Trace) -> Trace:
    """Return the trace with the model that a handler stores."""
    return Trace(small.events, msgspec.structs.replace(small.meta, extra=to_extra([architecture()])), small.quality)


def rows(found: Trace, columns: str, **request: Any) -> dict[Any, tuple[Any, ...]]:
    frame = modules.table(found, ViewRequest(**request))
    keys = [name if pd.isna(module) else module for name, module in zip(frame["name"], frame["module"], strict=True)]
    cells = [[None if pd.isna(cell) else cell for cell in row] for row in frame[columns.split()].to_numpy(object)]
    return dict(zip(keys, map(tuple, cells), strict=True))


def test_the_view_keeps_the_contract_of_views(small: Trace, kept: Trace) -> None:
    check_view(modules.VIEW, small)
    check_view(modules.VIEW, kept)


def test_times_calls_and_device_work_of_two_steps(small: Trace) -> None:
    columns = (
        "depth class calls backward_calls call_ns total_cpu_ns self_cpu_ns total_device_ns self_device_ns occurrence"
    )
    assert rows(small, columns) == {
        "Net": (0, "Net", 2, 0, 600, 620, 60, 240, 0, 10),
        "a": (1, "Linear", 2, 2, 200, 340, 340, 240, 240, 4),
        "b.c": (1, "Conv", 2, 2, 200, 220, 220, 0, 0, 4),
        "(no module)": (0, None, None, None, None, 80, 80, 14, 14, 2),
    }


def test_shares_are_of_everything(small: Trace) -> None:
    found = rows(small, "total_cpu_ratio self_cpu_ratio total_device_ratio")
    assert found["Net"] == pytest.approx((620 / 700, 60 / 700, 240 / 254))
    assert found["(no module)"] == pytest.approx((80 / 700, 80 / 700, 14 / 254))


def test_siblings_are_in_the_order_of_their_cost(small: Trace) -> None:
    assert list(modules.table(small, ViewRequest())["name"]) == ["Net", "a", "b.c", "(no module)"]


def test_memory_that_layers_allocate(small: Trace) -> None:
    found = rows(small, "total_allocated_bytes self_allocated_bytes")
    assert found == {"Net": (248, 0), "a": (248, 248), "b.c": (0, 0), "(no module)": (16, 16)}


def test_parameters_and_flops_that_the_handler_kept(kept: Trace) -> None:
    columns = "depth calls parameters self_parameters parameter_bytes flops self_flops"
    assert rows(kept, columns) == {
        "Net": (0, 2, 20, 0, 64, 6600, None),
        "a": (1, 2, 12, 12, 48, 6000, 6000),
        "b": (1, 0, 8, 0, 16, 600, None),
        "b.c": (2, 2, 4, 4, 8, 600, 600),
        "b.d": (2, 0, 4, 4, 8, None, None),
        "(no module)": (0, None, None, None, None, None, None),
    }


def test_without_a_handler_parameters_and_flops_are_unknown(small: Trace) -> None:
    assert set(rows(small, "parameters flops").values()) == {(None, None)}


def test_recorded_flops_are_those_of_the_operators() -> None:
    events = [row | {"flops": 7} if row["name"] in ("mm", "loss") else row for row in step(0, 0)]
    assert rows(trace(events), "flops self_flops") == {
        "Net": (7, 0), "a": (7, 7), "b.c": (0, 0), "(no module)": (7, 7)
    }  # fmt: skip


def test_forward_and_backward_apart(kept: Trace) -> None:
    frame = modules.table(kept, ViewRequest(by=("phase",)))
    assert list(frame.loc[frame["depth"] == 0, "name"]) == ["forward", "backward", "other", "no phase"]
    at = {name: number for number, name in enumerate(frame["name"]) if frame["depth"].iat[number] == 0}
    forward, backward = frame.iloc[: at["backward"]], frame.iloc[at["backward"] : at["other"]]
    both = [part.set_index("name") for part in (forward, backward)]
    assert [part.loc["a", "self_cpu_ns"] for part in both] == [160, 180]
    assert [part.loc["a", "self_device_ns"] for part in both] == [100, 140]
    assert [part.loc["a", "self_flops"] for part in both] == [2000, 4000]
    assert [part.loc["Net", "total_cpu_ns"] for part in both] == [320, 300]
    assert [part.loc["a", "calls"] for part in both] == [2, 0]
    assert [part.loc["a", "backward_calls"] for part in both] == [0, 2]
    assert frame.loc[frame["depth"] == 0, "total_cpu_ns"].sum() == 700


def test_steps_and_ranks_apart(small: Trace) -> None:
    assert rows(small, "calls self_cpu_ns", steps=(1,))["a"] == (1, 170)
    by_step = modules.table(small, ViewRequest(by=("step",)))
    assert list(by_step.loc[by_step["depth"] == 0, "name"]) == ["step 0", "step 1", "no step"]
    both = concat_traces([trace(step(0, 0), rank=rank) for rank in (0, 1)])
    by_rank = modules.table(both, ViewRequest(by=("rank",)))
    assert list(by_rank.loc[by_rank["depth"] == 0, "name"]) == ["rank 0", "rank 1"]
    assert list(by_rank.loc[by_rank["name"] == "a", "self_cpu_ns"]) == [170, 170]


def test_only_what_chosen_operators_do_is_counted(small: Trace) -> None:
    assert rows(small, "self_cpu_ns self_device_ns", pattern="^mm$") == {
        "Net": (0, 0), "a": (160, 100), "b.c": (0, 0)
    }  # fmt: skip
    with pytest.raises(UsageError, match="step 7"):
        modules.table(small, ViewRequest(steps=(7,)))


def test_display_filters_work_on_the_tree(kept: Trace) -> None:
    summary = perfkit.summarize(kept, "modules", minimums={"parameters": 5}, start="^Net$", depth=1)
    assert list(summary["name"]) == ["Net", "a", "b"]
    assert list(perfkit.summarize(kept, "modules", hide="^b$", columns=["parameters"])["depth"]) == [0, 1, 1, 1, 0]
    average = perfkit.summarize(kept, "modules", average=True).set_index("name")
    assert (average.loc["a", "self_cpu_ns"], average.loc["a", "calls"], average.loc["a", "parameters"]) == (170, 1, 12)


def test_models_with_names_stand_side_by_side() -> None:
    events = [
        host(module_label("", "Gen"), "annotation", 0, 10), host("one", "operator", 1, 5),
        host(module_label("critic.", "Critic"), "annotation", 20, 50),
        host(module_label("critic.0", "Linear"), "annotation", 30, 9),
        host("two", "operator", 31, 3), host("three", "operator", 50, 2),
    ]  # fmt: skip
    assert rows(trace(events), "depth name total_cpu_ns") == {
        "Gen": (0, "Gen", 5), "critic": (0, "critic", 5), "critic.0": (1, "0", 3)
    }  # fmt: skip


def test_calls_that_the_framework_recorded_itself() -> None:
    events = [
        host("Net", "forward", 0, 100, phase="forward", layer="Net_0"),
        host("Linear", "forward", 10, 20, phase="forward", layer="Linear_3"),
        host("mm", "operator", 12, 5),
        host("Linear", "forward", 40, 20, phase="forward", layer="Linear_3"),
        host("mm", "operator", 42, 7),
    ]
    assert rows(trace(events), "depth name class calls backward_calls self_cpu_ns") == {
        "Net_0": (0, "Net_0", "Net", 1, None, 0), "Net_0/Linear_3": (1, "Linear_3", "Linear", 2, None, 12)
    }  # fmt: skip


def test_without_layers_the_table_is_empty_and_says_why() -> None:
    found = trace([host("mm", "operator", 0, 5)])
    assert modules.table(found, ViewRequest()).empty
    assert "annotate(model)" in str(modules.VIEW.explain_empty(found))


def check_totals(path: Path | None) -> None:
    """Compare the sums of the layers with counts over the events that ignore layers."""
    found = perfkit.load(path)
    table = modules.table(found, ViewRequest())
    if table.empty:
        assert found.codes("module").codes.max(initial=-1) < 0
        return
    operator = found.host & found.rows("kind", *OPERATOR_KINDS)
    inside = nesting.nearest_on_path(found.ints("parent"), operator) >= 0
    roots = table[table["depth"] == 0]
    assert int(table["self_cpu_ns"].sum()) == int(found.ints("self_ns", 0)[inside].sum())
    assert int(roots["total_cpu_ns"].sum()) == int(table["self_cpu_ns"].sum())
    device_ns = int(found.ints("dur_ns")[found.rows("kind", *DEVICE_WORK)].sum())
    assert int(roots["total_device_ns"].fillna(0).sum()) == device_ns
    assert int(roots["occurrence"].sum()) == int((operator & ~np.append(inside, False)[found.ints("parent")]).sum())
    assert table["module"].dropna().is_unique


def test_totals_of_torch_files(torch_file: Path) -> None:
    check_totals(torch_file)


def test_totals_of_paddle_files(paddle_file: Path) -> None:
    check_totals(paddle_file)


def test_a_recomputed_resnet_is_one_tree(traces: Path) -> None:
    """Torch's own module events have 69 layers in 5 wrappers. A recomputed layer stays at its first place."""
    table = perfkit.summarize(traces / "torch" / "mi300x-resnet-act-checkpoint-steps.json.gz", "modules")
    layers = table[table["module"].notna()]
    assert list(layers.loc[layers["depth"] == 0, "name"]) == ["DistributedDataParallel_0"]
    recomputed = layers[layers["module"].str.contains("Checkpoint")]
    leaves = recomputed[recomputed["class"].isin(["Conv2d", "BatchNorm2d"])]
    assert (leaves["calls"] == 6).all()  # in three steps, forward and again in the backward pass
    assert (layers.loc[layers["name"] == "Conv2d_0", "calls"] == 3).all()


def test_the_layers_of_real_backward_kernels(traces: Path) -> None:
    """Sequence numbers give almost all kernels of a backward pass a layer. Kernels of the loss have no layer."""
    found = perfkit.load(traces / "torch" / "mi300x-ddp-resnet18-train.json.gz")
    backward = found.rows("kind", "kernel") & found.rows("phase", "backward")
    known = found.codes("module").codes >= 0
    assert (int(backward.sum()), int((backward & known).sum())) == (1310, 1300)
    names = np.array(found.codes("name").values, object)[found.codes("name").codes]
    root = nesting.first_on_path(
        found.ints("parent"), np.where(found.rows("phase", "backward"), np.arange(len(found)), -1)
    )
    around = names[root[found.ints("launched_by")[backward & ~known]]]
    assert set(around) == {"autograd::engine::evaluate_function: MseLossBackward0"}
