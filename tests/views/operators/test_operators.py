"""The view ``operators``, against numbers worked out by hand: memory, FLOPs, shares, groupings, unowned device work."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators import annotations as user_annotations
from perfkit_core.views.operators import families, operators
from tests.support.events import device, host, trace

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


def rows(found: Trace, columns: str, key: str = "name", **request: Any) -> dict[Any, tuple[Any, ...]]:
    frame = operators.table(found, ViewRequest(**request))
    return {
        row[key]: tuple(None if pd.isna(row[c]) else row[c] for c in columns.split())
        for row in frame.to_dict("records")
    }


def test_the_view_keeps_its_contract(small: Trace) -> None:
    check_trace(small)
    check_view(operators.VIEW, small)
    check_view(user_annotations.VIEW, small)


def test_overloads_share_one_row_unless_grouped_by_overload(small: Trace) -> None:
    assert rows(small, "op_name calls total_cpu_ns")["lib::add"] == ("add", 2, 90)
    table = operators.table(small, ViewRequest(by=("overload",))).set_index(["name", "overload"])
    assert table.loc[("lib::add", "Tensor"), "total_cpu_ns"] == 50
    assert table.loc[("lib::add", "out"), "flops"] == 7


def test_a_redispatch_to_another_overload_is_one_call() -> None:
    found = [host("lib::to.dtype", "operator", 0, 100), host("lib::to.layout", "operator", 10, 80)]
    assert rows(trace(found), "calls self_cpu_ns total_cpu_ns") == {"lib::to": (1, 100, 100)}


@pytest.mark.parametrize("kind", ["operator", "communication"])
def test_an_operator_in_a_label_of_its_own_name_is_a_call(kind: str) -> None:
    """Labels and operators are different calls, whichever of them is inside."""
    found = [host("mm", "annotation", 0, 100), host("mm", kind, 10, 80), host("mm", "annotation", 20, 30)]
    assert rows(trace(found), "calls self_cpu_ns total_cpu_ns") == {"mm": (1, 50, 80)}
    labels = user_annotations.table(trace(found), ViewRequest()).iloc[0]
    assert (labels["calls"], labels["self_cpu_ns"], labels["total_cpu_ns"]) == (2, 50, 100)
    assert families.table(trace(found), ViewRequest())["self_cpu_ns"].tolist() == [50]


def test_a_label_that_looks_like_an_overload_keeps_its_name() -> None:
    found = trace([host("lib::to.mine", "annotation", 0, 100), host("lib::to.dtype", "operator", 10, 80)])
    assert user_annotations.table(found, ViewRequest())["name"].tolist() == ["lib::to.mine"]


def test_time_of_details_belongs_to_their_operator(small: Trace) -> None:
    """The self time of mm excludes add and the runtime call inside its detail. It includes the other time of the
    detail."""
    assert rows(small, "self_cpu_ns total_cpu_ns")["mm"] == (100 - 50 - 5, 100)
    assert rows(small, "self_device_ns total_device_ns")["mm"] == (20, 30)


def test_memory_and_flops(small: Trace) -> None:
    columns = "self_cpu_bytes total_cpu_bytes self_device_bytes total_device_bytes flops"
    found = rows(small, columns)
    assert found["mm"] == (64, 96, 0, 1000, 60)
    assert found["lib::add"] == (32 - 96, 32 - 96, 1000, 1000, 7)  # those of the call in mm are a part of its FLOPs
    without = trace([host("mm", "operator", 0, 10)])
    assert rows(without, columns) == {"mm": (None,) * 5}


def test_each_share_has_its_own_denominator(small: Trace) -> None:
    """Each share has its own denominator: 125 for self time, 140 for total time, and 38 for device time."""
    found = rows(small, "self_cpu_ratio total_cpu_ratio self_device_ratio")
    assert found["mm"] == pytest.approx((45 / 125, 100 / 140, 20 / 38))
    assert found["lib::add"] == pytest.approx((80 / 125, 90 / 140, 10 / 38))


def test_self_device_times_add_up_to_all_device_work(small: Trace) -> None:
    found = rows(small, "calls total_cpu_ns self_device_ns total_device_ns")
    assert found["(no launch recorded)"] == (None, None, 3, 3)
    assert found["(launched outside operators)"] == (None, None, 5, 5)
    assert operators.table(small, ViewRequest())["self_device_ns"].sum() == 10 + 20 + 5 + 3


def test_filtered_and_native_tables_have_no_rows_of_unowned_work(small: Trace) -> None:
    assert set(rows(small, "calls", pattern="mm")) == {"mm"}
    assert set(rows(small, "calls", native=True)) == {"mm", "lib::add"}


def test_by_label_and_by_scope(small: Trace) -> None:
    table = operators.table(small, ViewRequest(by=("label", "scope")))[["name", "label", "scope"]].fillna("")
    assert set(table.itertuples(index=False, name=None)) == {
        ("mm", "inner label", "outer label;inner label"),
        ("lib::add", "inner label", "outer label;inner label"),
        ("lib::add", "outer label", "outer label"),
        ("(no launch recorded)", "", ""),
        ("(launched outside operators)", "", ""),
    }


def test_the_device_of_an_operator_is_where_its_work_ran(small: Trace) -> None:
    table = operators.table(small, ViewRequest(by=("device",)))
    assert set(zip(table["name"], table["device"], table["total_device_ns"], strict=True)) == {
        ("mm", "several", 30),
        ("lib::add", "cuda:0", 10),
        ("lib::add", "cpu", 0),
        ("(launched outside operators)", "cuda:0", 5),
        ("(no launch recorded)", "cuda:0", 3),
    }
    assert rows(small, "calls", device="cuda:0") == {
        "lib::add": (1,), "(launched outside operators)": (None,), "(no launch recorded)": (None,),
    }  # fmt: skip


def test_native_memory_counts_by_time_on_any_thread() -> None:
    """Natively, memory counts for every event that runs at the time of the allocation. Memory that is allocated while
    no event runs has a separate row."""
    found = trace([
        host("mm", "operator", 0, 100),
        host("add", "operator", 10, 20, tid=2),
        host("[memory]", "memory", 20, 0, tid=1, bytes=8),
        host("[memory]", "memory", 100, 0, tid=1, bytes=4),
        host("[memory]", "memory", 150, 0, tid=1, bytes=2),
    ])  # fmt: skip
    assert rows(found, "self_cpu_bytes total_cpu_bytes") == {"mm": (8, 8), "add": (0, 0)}
    assert rows(found, "calls self_cpu_bytes total_cpu_bytes", native=True) == {
        "mm": (1, 12, 12), "add": (1, 8, 8), "[memory]": (1, 2, 2),
    }  # fmt: skip


def test_native_self_time_subtracts_each_child() -> None:
    """Two frames overlap inside an operator. Their union is 60 ns and their sum is 90 ns."""
    found = trace([
        host("mm", "operator", 0, 70), host("a", "python", 5, 45), host("b", "python", 20, 45),
    ])  # fmt: skip
    assert rows(found, "self_cpu_ns") == {"mm": (70 - 60,)}
    assert rows(found, "self_cpu_ns", native=True) == {"mm": (70 - 90,)}


def test_native_shapes_leave_lists_of_tensors_out(small: Trace) -> None:
    assert set(operators.table(small, ViewRequest(by=("shape",), native=True))["shapes"]) == {"[[2,3],[]]", "[]"}


def test_labels_have_shares_of_the_steps() -> None:
    found = trace([
        host("step", "step", 0, 1000, step=0),
        host("mine", "annotation", 100, 250),
        host("launch", "runtime", 110, 10, correlation=1),
        device("k", "kernel", 300, 30, correlation=1),
        host("launch", "runtime", 600, 10, correlation=2),
        device("k", "kernel", 700, 10, correlation=2),
    ])  # fmt: skip
    (row,) = user_annotations.table(found, ViewRequest()).to_dict("records")
    assert row["total_cpu_ratio"] == pytest.approx(0.25)
    assert row["total_device_ratio"] == pytest.approx(30 / 40)


def test_an_unknown_grouping_is_a_usage_error(small: Trace) -> None:
    with pytest.raises(UsageError, match="cannot be grouped by 'colour'"):
        operators.table(small, ViewRequest(by=("colour",)))
