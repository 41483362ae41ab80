"""The view of layers over a small trace, with numbers computed by hand, and over all real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import perfkit_core as perfkit
from perfkit_core.base.algorithms import nesting
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.assembly.labels import backward_label, module_label
from perfkit_core.trace.model.architecture import Architecture, Layer, Parameter, to_extra
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views import modules
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_table


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


def test_the_view_keeps_the_contract_of_views(small: Trace, kept: Trace) -> None:
    check_view(modules.VIEW, small)
    check_view(modules.VIEW, kept)


def test_layers_of_small_models(small: Trace, kept: Trace) -> None:
    """Shares are of everything. Siblings are in the order of their cost. Parameters and FLOPs are those that the
    handler stored. Recorded FLOPs are those of the operators."""
    flops = [row | {"flops": 7} if row["name"] in ("mm", "loss") else row for row in step(0, 0)]
    ranks = concat_traces([trace(step(0, 0), rank=rank) for rank in (0, 1)])
    named = [
        host(module_label("", "Gen"), "annotation", 0, 10), host("one", "operator", 1, 5),
        host(module_label("critic.", "Critic"), "annotation", 20, 50),
        host(module_label("critic.0", "Linear"), "annotation", 30, 9),
        host("two", "operator", 31, 3), host("three", "operator", 50, 2),
    ]  # fmt: skip
    recorded = [
        host("Net", "forward", 0, 100, phase="forward", layer="Net_0"),
        host("Linear", "forward", 10, 20, phase="forward", layer="Linear_3"),
        host("mm", "operator", 12, 5),
        host("Linear", "forward", 40, 20, phase="forward", layer="Linear_3"),
        host("mm", "operator", 42, 7),
    ]
    check_tables("views/modules.txt", {
        "two steps": view_table("modules", small),
        "with the stored model": view_table("modules", kept),
        "forward and backward apart": view_table("modules", kept, by=("phase",)),
        "recorded FLOPs": view_table("modules", trace(flops)),
        "step 1": view_table("modules", small, steps=(1,)),
        "steps apart": view_table("modules", small, by=("step",)),
        "ranks apart": view_table("modules", ranks, by=("rank",)),
        "only what the operator mm does": view_table("modules", small, pattern="^mm$"),
        "models with names stand side by side": view_table("modules", trace(named)),
        "calls that the framework recorded itself": view_table("modules", trace(recorded)),
    })  # fmt: skip
    with pytest.raises(UsageError, match="step 7"):
        view_table("modules", small, steps=(7,))


def test_display_filters_work_on_the_tree(kept: Trace) -> None:
    summary = perfkit.summarize(kept, "modules", minimums={"parameters": 5}, start="^Net$", depth=1)
    assert list(summary["name"]) == ["Net", "a", "b"]
    assert list(perfkit.summarize(kept, "modules", hide="^b$", columns=["parameters"])["depth"]) == [0, 1, 1, 1, 0]
    average = perfkit.summarize(kept, "modules", average=True).set_index("name")
    assert (average.loc["a", "self_cpu_ns"], average.loc["a", "calls"], average.loc["a", "parameters"]) == (170, 1, 12)


def test_without_layers_the_table_is_empty_and_says_why() -> None:
    found = trace([host("mm", "operator", 0, 5)])
    assert modules.table(found, ViewRequest()).empty
    assert "annotate(model)" in str(modules.VIEW.explain_empty(found))


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
