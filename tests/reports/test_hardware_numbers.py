"""FLOPs, bytes and limits that were wrong. The right values are computed by hand, or by torch's own counter."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.bare
def test_flops_of_operators_inside_operators_are_those_of_the_work(reported) -> None:
    """``aten::mm`` of vmap has the shapes of one product of three. 3 · 2 · 4 · 5 · 2 = 240."""
    found = reported("vmap.json.gz")
    for view in ("roofline", "gemm", "operators"):
        assert sum(row["flops"] or 0 for row in found.rows(view)) == 240, view
    assert found.rows("model_flops")[0]["model_flops"] == 240
    assert [(row["batch"], row["m"], row["n"], row["k"]) for row in found.rows("gemm")] == [(3, 4, 2, 5)]


@pytest.mark.live
@pytest.mark.parametrize(
    ("work", "flops"),
    [
        pytest.param("mm", 3 * 2 * 4 * 5 * 2, id="mm"),
        pytest.param("linear", 3 * 2 * 4 * 5 * 6, id="linear"),
        pytest.param("nested", 2 * 3 * 2 * 4 * 5 * 2, id="nested"),
        # batch 3, each 2 images of 8 · 8 with padding, 4 to 6 channels, kernels of 3 · 3
        pytest.param("conv2d", 3 * 2 * 2 * 8 * 8 * 6 * 4 * 9, id="conv2d"),
    ],
)
def test_flops_below_vmap(reported, tmp_path: Path, work: str, flops: int) -> None:
    import torch
    from torch import nn

    functional, vmap = nn.functional, torch.vmap
    calls = {
        "mm": (vmap(torch.mm), [(3, 4, 5), (3, 5, 2)]),
        "linear": (vmap(functional.linear), [(3, 4, 5), (3, 6, 5)]),
        "nested": (vmap(vmap(torch.mm)), [(2, 3, 4, 5), (2, 3, 5, 2)]),
        "conv2d": (vmap(lambda x, w: functional.conv2d(x, w, padding=1)), [(3, 2, 4, 8, 8), (3, 6, 4, 3, 3)]),
    }
    function, shapes = calls[work]
    tensors = [torch.ones(shape) for shape in shapes]
    found = reported(str(_recorded(tmp_path, lambda: function(*tensors))))
    assert found.rows("model_flops")[0]["model_flops"] == flops
    assert sum(row["flops"] or 0 for row in found.rows("roofline")) == flops


def _recorded(folder: Path, work: Any) -> Path:
    import torch

    with torch.profiler.profile(record_shapes=True) as profiler:
        work()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    return folder / "trace.json"


@pytest.mark.bare
@pytest.mark.parametrize(
    ("name", "node", "work", "calls", "total"),
    [
        # calls of the operators in the recording, and in the node; FLOPs: all elementwise operators, 1,000 each
        pytest.param("mul_backward.json.gz", "MulBackward0", {"aten::mul": 3}, 2, 5_000, id="mul"),
        pytest.param(
            "div_backward.json", "DivBackward0", {"aten::div": 3, "aten::neg": 1, "aten::mul": 1}, 4, 7_000, id="div"
        ),
        pytest.param("mul_backward_twice.json", "MulBackward0", {"aten::mul": 4}, 3, 4_000, id="double backward"),
    ],
)
def test_nodes_of_autograd_compute_nothing_themselves(
    reported, name: str, node: str, work: dict[str, int], calls: int, total: int
) -> None:
    """The work of a node is that of its operators. It is counted once: below the node's name, or below theirs."""
    found = reported(name)
    rows = {row["name"]: row for row in found.rows("roofline")}
    counted = sum((row["flops"] or 0) for row in rows.values())
    assert counted == total
    if node in rows:
        assert rows[node]["flops"] == 1_000 * calls
    else:
        assert {operator: rows[operator]["calls"] for operator in work} == work
    if name == "mul_backward.json.gz":  # each multiplication reads 2 and writes 1 vector of 1,000 floats
        assert sum(rows[key]["bytes"] for key in ("aten::mul", node) if key in rows) == 36_000
        assert rows.get(node, {"bytes": 24_000})["bytes"] == 24_000
    assert found.rows("model_flops") == []  # there are no matrix products


@pytest.mark.bare
@pytest.mark.parametrize(
    ("name", "operator", "size", "flops"),
    [
        # floats have 4 bytes, indices 8: what is read, and what is written
        pytest.param("glu", "aten::glu", 4 * (40 + 20), 20, id="glu"),
        pytest.param("glu_first_axis", "aten::glu", 4 * (30 + 15), 15, id="glu of the first axis"),
        pytest.param("glu_half", "aten::glu", 2 * (48 + 24), 24, id="glu of bfloat16"),
        pytest.param("addbmm", "aten::addbmm", 4 * (24 + 60 + 90 + 24), 720, id="addbmm"),
        pytest.param("baddbmm", "aten::baddbmm", 4 * (72 + 60 + 90 + 72), 720, id="baddbmm"),
        pytest.param("addmv", "aten::addmv", 4 * (4 + 20 + 5 + 4), 40, id="addmv"),
        # input, two weights, two biases, two states; result of all steps, two states
        pytest.param(
            "lstm_infer", "aten::mkldnn_rnn_layer", 4 * (90 + 140 + 196 + 56 + 42 + 126 + 42), None, id="lstm"
        ),
        pytest.param(
            "lstm_wide", "aten::mkldnn_rnn_layer", 4 * (80 + 48 + 36 + 24 + 12 + 60 + 12), None, id="other sizes"
        ),
        pytest.param(
            "lstm_half", "aten::mkldnn_rnn_layer", 2 * (60 + 36 + 36 + 24 + 12 + 60 + 12), None, id="bfloat16"
        ),
        pytest.param("argmax", "aten::argmax", 4 * 24 + 8 * 4, None, id="argmax"),
        pytest.param("argmin", "aten::argmin", 8 * 24 + 8 * 6, None, id="argmin of float64"),
        pytest.param("max_indices", "aten::max", 4 * 24 + (4 + 8) * 4, None, id="max and indices"),
    ],
)
def test_bytes_of_operators(reported, name: str, operator: str, size: int, flops: int | None) -> None:
    row = reported(f"{name}.json").row("roofline", name=operator)
    assert row["bytes"] == size
    assert flops in (None, row["flops"])


@pytest.mark.bare
@pytest.mark.parametrize(
    ("name", "operator", "size"),
    [
        pytest.param("topk", "aten::topk", 4 * 24 + (4 + 8) * 8, id="topk"),
        pytest.param("addr", "aten::addr", 4 * (20 + 4 + 5 + 20), id="addr"),
    ],
)
def test_operators_without_a_formula_have_no_bytes_or_right_ones(reported, name: str, operator: str, size: int) -> None:
    rows = [row["bytes"] for row in reported(f"{name}.json").rows("roofline") if row["name"] == operator]
    assert rows in ([], [None], [size])


@pytest.mark.bare
def test_recursive_operators_count_once_in_totals(reported) -> None:
    """An innermost operator takes 8 µs. Each operator around it begins 1 µs before and ends 1 µs after."""
    found = reported("recursive.json")
    totals = {row["name"]: row["total_cpu_ns"] for row in found.rows("operators")}
    assert (totals["aten::mm"], totals["aten::add"]) == (12_000, 16_000)
    assert sum(row["flops"] or 0 for row in found.rows("roofline")) == 2 * 64 * 32 * 16 + 8


@pytest.mark.live
@pytest.mark.parametrize("widths", [(16, 32, 8), (8, 8, 8, 4)])
def test_hardware_flops_of_a_recomputation_that_stops_early(reported, tmp_path: Path, widths: tuple[int, ...]) -> None:
    """torch stops a recomputation when the last saved tensor is there: the last layer is not computed again. Its own
    counter sees what is computed."""
    import torch
    from torch.utils.checkpoint import checkpoint
    from torch.utils.flop_counter import FlopCounterMode

    def step() -> None:
        layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
        value = checkpoint(
            torch.nn.Sequential(*layers), torch.ones(4, widths[0], requires_grad=True), use_reentrant=False
        )
        value.sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    products = ("aten::mm", "aten::addmm", "aten::bmm")
    found = reported(str(_recorded(tmp_path, step)))
    rows = [row for row in found.rows("roofline") if row["name"] in products]
    assert sum(row["flops"] for row in rows) == counter.get_total_flops()
    assert found.rows("model_flops")[0]["hardware_flops"] == counter.get_total_flops()
