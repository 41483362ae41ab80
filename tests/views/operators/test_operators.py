"""The view ``operators``, against numbers worked out by hand: memory, FLOPs, shares, groupings, unowned device work."""

from __future__ import annotations

from typing import Any

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.testing.conformance import check_view
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators import annotations as user_annotations
from perfkit_core.views.operators import operators
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_table

ROWS = [
    host("outer label", "annotation", 0, 400),
    host("inner label", "annotation", 10, 200),
    host("mm", "operator", 20, 100, flops=60, shapes='[[2,3],[[1],[2]]]'),
    host("[memory]", "memory", 30, 0, bytes=64),
    host("lib::add.Tensor", "operator", 40, 50, flops=5),
    host("[memory]", "memory", 50, 0, bytes=32),
    device("[memory]", "memory", 60, 0, bytes=1000, pid=1, tid=1),
    host("launch", "runtime", 70, 10, correlation=1),
    host("detail", "operator_detail", 95, 15),
    host("launch", "runtime", 100, 5, correlation=2),
    host("lib::add.out", "operator", 220, 40, tid=1, flops=7),
    host("[memory]", "memory", 230, 0, bytes=-96),
    host("launch", "runtime", 300, 10, correlation=3),
    device("k1", "kernel", 500, 10, correlation=1),
    device("k2", "kernel", 520, 20, correlation=2, device="cuda:1"),
    device("k3", "kernel", 540, 5, correlation=3),
    device("lost", "kernel", 560, 3),
]  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace(ROWS, names=lambda name: {"mm": "matmul", "lib::add": "add"}.get(name.partition(".")[0]))


def test_the_view_keeps_its_contract(small: Trace) -> None:
    check_trace(small)
    check_view(operators.VIEW, small)
    check_view(user_annotations.VIEW, small)


def test_the_operators_of_the_small_trace(small: Trace) -> None:
    """Time of details belongs to their operator: the self time of mm (45) excludes add and the runtime call inside its
    detail, and includes the other time of the detail. FLOPs of the add in mm are a part of those of mm. Each share has
    its own denominator: 125 for self time, 140 for total time, and 38 for device time. An operator's device is where
    its work ran. Natively, shapes leave lists of tensors out, and unowned work has no rows."""
    requests: list[dict[str, Any]] = [
        {}, {"native": True}, *({"by": (by,)} for by in ("overload", "device")), {"by": ("label", "scope")},
        {"pattern": "mm"}, {"device": "cuda:0"}, {"by": ("shape",), "native": True},
    ]  # fmt: skip
    tables = {f"operators {asked or ''}": view_table("operators", small, **asked) for asked in requests}
    check_tables("views/operators.txt", tables)


def test_calls_of_operators_and_labels() -> None:
    """Labels and operators are different calls, whichever of them is inside. Natively, memory counts for every event
    that runs at the time of the allocation, and memory that is allocated while no event runs has a separate row.
    Natively, self time subtracts each child: two frames that overlap have a union of 60 and a sum of 90."""
    redispatch = trace([host("lib::to.dtype", "operator", 0, 100), host("lib::to.layout", "operator", 10, 80)])
    label = trace([host("lib::to.mine", "annotation", 0, 100), host("lib::to.dtype", "operator", 10, 80)])
    memory = trace([
        host("mm", "operator", 0, 100),
        host("add", "operator", 10, 20, tid=2),
        host("[memory]", "memory", 20, 0, tid=1, bytes=8),
        host("[memory]", "memory", 100, 0, tid=1, bytes=4),
        host("[memory]", "memory", 150, 0, tid=1, bytes=2),
    ])  # fmt: skip
    frames = trace([host("mm", "operator", 0, 70), host("a", "python", 5, 45), host("b", "python", 20, 45)])
    steps = trace([
        host("step", "step", 0, 1000, step=0),
        host("mine", "annotation", 100, 250),
        host("launch", "runtime", 110, 10, correlation=1),
        device("k", "kernel", 300, 30, correlation=1),
        host("launch", "runtime", 600, 10, correlation=2),
        device("k", "kernel", 700, 10, correlation=2),
    ])  # fmt: skip
    tables = {
        "a redispatch to another overload is one call": view_table("operators", redispatch),
        "a label that looks like an overload keeps its name": view_table("annotations", label),
        "memory by time": view_table("operators", memory),
        "memory by time, natively": view_table("operators", memory, native=True),
        "overlapping frames": view_table("operators", frames),
        "overlapping frames, natively": view_table("operators", frames, native=True),
        "labels have shares of the steps": view_table("annotations", steps),
    }
    for kind in ("operator", "communication"):
        found = trace([host("mm", "annotation", 0, 100), host("mm", kind, 10, 80), host("mm", "annotation", 20, 30)])
        for view in ("operators", "annotations", "families"):
            tables[f"{kind} in a label of its own name: {view}"] = view_table(view, found)
    check_tables("views/operators_and_labels.txt", tables)


def test_an_unknown_grouping_is_a_usage_error(small: Trace) -> None:
    with pytest.raises(UsageError, match="cannot be grouped by 'colour'"):
        view_table("operators", small, by=("colour",))
