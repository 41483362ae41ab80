"""The view ``graph`` on a small trace, against edges worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import graph
from tests.support.events import device, host, trace

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


def rows(found: Trace, columns: str, **request: Any) -> list[tuple[Any, ...]]:
    table = graph.table(found, ViewRequest(**request))
    return [tuple(None if pd.isna(row[name]) else row[name] for name in columns.split()) for _, row in table.iterrows()]


def test_nodes_of_the_first_step() -> None:
    assert rows(trace(ROWS), "node name start_ns total_cpu_ns device_events total_device_ns streams") == [
        (0, "linear", 0, 100, 1, 100, "cuda:0/7"),
        (1, "relu", 110, 30, 1, 10, "cuda:0/8"),
        (2, "relu_backward", 190, 50, 1, 10, "cuda:0/7"),
        (3, "addmm_backward", 290, 50, 1, 10, "cuda:0/8"),
        (4, "t_backward", 350, 10, 0, 0, None),
    ]


def test_what_comes_before_a_node() -> None:
    """The operators with the sequence numbers 4 (t) and 5 (addmm) are inside linear, so the forward node of their
    backward nodes is node 0."""
    assert rows(trace(ROWS), "node after after_on_stream forward forward_by") == [
        (0, None, None, None, None),
        (1, 0, None, None, None),
        (2, None, 0, 1, "sequence"),
        (3, 2, 1, 0, "sequence"),
        (4, 3, None, 0, "sequence"),
    ]


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
    assert rows(trace(found), "name after_on_stream") == [
        ("linear", None), ("relu", None), ("split", None), ("join", 2),
    ]  # fmt: skip


def test_another_step_and_another_filter() -> None:
    assert rows(trace(ROWS), "node name step", steps=(1,)) == [(0, "linear", 1)]
    assert rows(trace(ROWS), "name after", pattern="relu") == [("relu", None), ("relu_backward", None)]


def test_edges_join_threads_streams_and_passes() -> None:
    assert rows(trace(ROWS), "before after before_name after_name edge", by=("edge",)) == [
        (0, 1, "linear", "relu", "thread"),
        (2, 3, "relu_backward", "addmm_backward", "thread"),
        (3, 4, "addmm_backward", "t_backward", "thread"),
        (0, 2, "linear", "relu_backward", "stream"),
        (1, 3, "relu", "addmm_backward", "stream"),
        (1, 2, "relu", "relu_backward", "backward"),
        (0, 3, "linear", "addmm_backward", "backward"),
        (0, 4, "linear", "t_backward", "backward"),
    ]


NAMES = {"mm": "matmul", "mm_b": "matmul_grad", "add": "add", "add_b": "add_grad"}.get


def test_without_sequence_numbers_the_order_of_calls_links_backward_to_forward() -> None:
    """The first of two backward calls of mm belongs to the last of two forward calls. add has two forward calls but one
    backward call, so its forward call is unknown."""
    forward = [host(name, "operator", 10 * i, 5) for i, name in enumerate(["mm", "add", "mm", "add"])]
    backward = [
        host(name, "operator", 100 + 10 * i, 5, phase="backward") for i, name in enumerate(["mm_b", "add_b", "mm_b"])
    ]
    found = trace([*forward, *backward], names=NAMES)
    assert rows(found, "name forward forward_by")[4:] == [
        ("mm_b", 2, "order"),
        ("add_b", None, None),
        ("mm_b", 0, "order"),
    ]


def test_an_empty_trace_and_an_unknown_grouping() -> None:
    empty = trace([host("step 0", "step", 0, 10, step=0)])
    assert graph.table(empty, ViewRequest()).empty
    assert graph.table(empty, ViewRequest(by=("edge",))).empty
    with pytest.raises(UsageError, match="grouped by 'shape'"):
        table_of(graph.VIEW, empty, ViewRequest(by=("shape",)))
