"""The view ``graph`` on a small trace, against edges worked out by hand."""

from __future__ import annotations

import pytest

from perfkit_core.errors import UsageError
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_rows, view_table

ROWS = [
    host("step 0", "step", 0, 1000, step=0),
    host("linear", "operator", 10, 100, sequence=4),
    host("t", "operator", 12, 5, sequence=4),
    host("addmm", "operator", 20, 80, sequence=5),
    host("launch", "runtime", 30, 5, correlation=1),
    device("gemm", "kernel", 50, 100, correlation=1),
    host("relu", "operator", 120, 30, sequence=6),
    host("launch", "runtime", 130, 5, correlation=2),
    device("relu", "kernel", 160, 10, correlation=2, stream=8),
    host("relu_backward", "operator", 200, 50, tid=2, phase="backward", sequence=6),
    host("launch", "runtime", 210, 5, tid=2, correlation=3),
    device("relu_b", "kernel", 260, 10, correlation=3),
    host("addmm_backward", "operator", 300, 50, tid=2, phase="backward", sequence=5),
    host("mm", "operator", 310, 20, tid=2),
    host("launch", "runtime", 312, 5, tid=2, correlation=4),
    device("gemm", "kernel", 330, 10, correlation=4, stream=8),
    host("t_backward", "operator", 360, 10, tid=2, phase="backward", sequence=4),
    host("step 1", "step", 1000, 1000, step=1),
    host("linear", "operator", 1010, 100, sequence=7),
]


def test_the_graph_of_a_step() -> None:
    """The operators with the sequence numbers 4 (t) and 5 (addmm) are inside linear, so the forward node of their
    backward nodes is node 0."""
    found = trace(ROWS)
    check_tables("views/graph.txt", {
        "nodes of the first step": view_table("graph", found),
        "edges": view_table("graph", found, by=("edge",)),
        "another step": view_table("graph", found, steps=(1,)),
        "a filter by name": view_table("graph", found, pattern="relu"),
    })  # fmt: skip


def test_the_earliest_work_of_an_operator_decides_what_comes_before_it() -> None:
    """The earliest work of split is the first of stream 9, so nothing comes before it, although gemm precedes its work
    on stream 7. The earliest work of join follows split on stream 7, its later work follows relu on stream 8."""
    found = [
        *ROWS[:9],
        host("split", "operator", 400, 20),
        host("launch", "runtime", 402, 2, correlation=11), device("s", "kernel", 410, 10, correlation=11, stream=9),
        host("launch", "runtime", 406, 2, correlation=12), device("s", "kernel", 430, 10, correlation=12),
        host("join", "operator", 450, 20),
        host("launch", "runtime", 452, 2, correlation=13), device("j", "kernel", 480, 10, correlation=13, stream=8),
        host("launch", "runtime", 456, 2, correlation=14), device("j", "kernel", 460, 10, correlation=14),
    ]  # fmt: skip
    assert view_rows("graph", trace(found), "name after_on_stream") == [
        ("linear", None), ("relu", None), ("split", None), ("join", 2),
    ]  # fmt: skip


def test_without_sequence_numbers_the_order_of_calls_links_backward_to_forward() -> None:
    """The first of two backward calls of mm belongs to the last of two forward calls. add has two forward calls but one
    backward call, so its forward call is unknown."""
    names = {"mm": "matmul", "mm_b": "matmul_grad", "add": "add", "add_b": "add_grad"}
    calls = [host(name, "operator", 10 * i, 5) for i, name in enumerate(["mm", "add", "mm", "add"])]
    calls += [
        host(f"{name}_b", "operator", 100 + 10 * i, 5, phase="backward") for i, name in enumerate(["mm", "add", "mm"])
    ]
    assert view_rows("graph", trace(calls, names=names.get), "name forward forward_by")[4:] == [
        ("mm_b", 2, "order"), ("add_b", None, None), ("mm_b", 0, "order"),
    ]  # fmt: skip


def test_an_empty_trace_and_an_unknown_grouping() -> None:
    empty = trace([host("step 0", "step", 0, 10, step=0)])
    assert view_table("graph", empty).empty
    assert view_table("graph", empty, by=("edge",)).empty
    with pytest.raises(UsageError, match="grouped by 'shape'"):
        view_table("graph", empty, by=("shape",))
