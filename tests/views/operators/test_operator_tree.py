"""The views ``operator_tree`` and ``operator_kinds``, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import operator_kinds, operator_tree
from tests.support.events import device, host, trace

NAMES = {"linear": "matmul", "mm": "matmul", "add": "add"}.get
ROWS = [
    host("linear", "operator", 0, 100, flops=9),
    host("mm", "operator", 10, 60, flops=4),
    host("prepare", "operator_detail", 12, 8),
    host("compute", "operator_detail", 20, 40),
    host("launch", "runtime", 30, 5, correlation=1),
    host("linear", "operator", 200, 50),
    host("mm", "operator", 210, 20),
    host("launch", "runtime", 215, 5, correlation=2),
    host("custom", "operator", 300, 40, tid=2),
    host("launch", "runtime", 400, 10, correlation=3),
    device("k", "kernel", 500, 10, correlation=1),
    device("k", "kernel", 510, 30, correlation=2),
    device("copy", "memcpy", 550, 4, correlation=3),
    device("lost", "kernel", 560, 6),
]


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace(ROWS, names=NAMES)


def lines(view: View, found: Trace, columns: str, **request: Any) -> list[tuple[Any, ...]]:
    table = table_of(view, found, ViewRequest(**request))
    return [tuple(None if pd.isna(row[c]) else row[c] for c in columns.split()) for row in table.to_dict("records")]


@pytest.mark.parametrize("view", [operator_tree.VIEW, operator_kinds.VIEW], ids=lambda view: view.name)
def test_the_views_keep_their_contract(view: View, small: Trace) -> None:
    check_view(view, small)


def test_values_of_the_tree_computed_by_hand(small: Trace) -> None:
    columns = "depth name kind calls total_cpu_ns min_cpu_ns max_cpu_ns total_device_ns flops"
    assert lines(operator_tree.VIEW, small, columns) == [
        (0, "linear", "operator", 2, 150, 50, 100, 40, 9),
        (1, "mm", "operator", 2, 80, 20, 60, 40, None),  # a part of the FLOPs of linear
        (2, "compute", "operator_detail", 1, 40, 40, 40, 10, None),
        (3, "k", "kernel", 1, None, None, None, 10, None),
        (2, "prepare", "operator_detail", 1, 8, 8, 8, 0, None),
        (2, "k", "kernel", 1, None, None, None, 30, None),
        (0, "custom", "operator", 1, 40, 40, 40, 0, None),
        (0, "(no launch recorded)", None, None, None, None, None, 6, None),
        (1, "lost", "kernel", 1, None, None, None, 6, None),
        (0, "(launched outside operators)", None, None, None, None, None, 4, None),
        (1, "copy", "memcpy", 1, None, None, None, 4, None),
    ]


def test_shares_are_of_the_row_above(small: Trace) -> None:
    found = {(row[0], row[1]): row[2:] for row in lines(operator_tree.VIEW, small, "depth name cpu_ratio device_ratio")}
    assert found[0, "linear"] == pytest.approx((150 / 190, 40 / 50))
    assert found[1, "mm"] == pytest.approx((80 / 150, 1.0))
    assert found[2, "compute"] == pytest.approx((40 / 80, 10 / 40))


def test_natively_every_operator_is_a_root(small: Trace) -> None:
    """Rows below a root are not operators. Device work that no operator launched is left out."""
    columns = "depth name calls total_cpu_ns total_device_ns"
    assert lines(operator_tree.VIEW, small, columns, native=True) == [
        (0, "linear", 2, 150, 40),
        (0, "mm", 2, 80, 40),
        (1, "compute", 1, 40, 10),
        (2, "k", 1, None, 10),
        (1, "prepare", 1, 8, 0),
        (1, "k", 1, None, 30),
        (0, "custom", 1, 40, 0),
    ]
    found = {row[0]: row[1] for row in lines(operator_tree.VIEW, small, "name cpu_ratio", native=True)}
    assert found["linear"] == pytest.approx(150 / 270)


def test_grouping_by_thread_separates_roots_and_denominators(small: Trace) -> None:
    found = lines(operator_tree.VIEW, small, "depth name tid cpu_ratio", by=("thread",), native=True)
    assert [(row[0], row[1]) for row in found if row[2] == 2] == [(0, "custom")]
    assert {row[1]: row[3] for row in found if row[0] == 0} == pytest.approx(
        {"linear": 150 / 230, "mm": 80 / 230, "custom": 1.0}
    )


def test_a_name_filter_makes_the_matching_operators_roots(small: Trace) -> None:
    found = lines(operator_tree.VIEW, small, "depth name calls", pattern="^mm$")
    assert found[0] == (0, "mm", 2)
    assert {row[1] for row in found if row[0] == 0} == {"mm"}


def test_values_of_operator_kinds_computed_by_hand(small: Trace) -> None:
    """mm lies inside linear and has the same canonical name. So calls and total time of this name come from linear
    only, and its self time comes from both."""
    columns = "depth name calls self_cpu_ns total_cpu_ns self_device_ns total_device_ns"
    assert lines(operator_kinds.VIEW, small, columns) == [
        (0, "matmul", 2, 40 + 30 + 55 + 15, 150, 40, 40),
        (1, "linear", 2, 40 + 30, 150, 0, 40),
        (1, "mm", 2, 55 + 15, 80, 40, 40),
        (0, "other", 1, 40, 40, 0, 0),
        (1, "custom", 1, 40, 40, 0, 0),
        (0, "(no launch recorded)", None, None, None, 6, 6),
        (0, "(launched outside operators)", None, None, None, 4, 4),
    ]
    shares = {row[0]: row[1:] for row in lines(operator_kinds.VIEW, small, "name self_cpu_ratio self_device_ratio")}
    assert shares["matmul"] == pytest.approx((140 / 180, 40 / 50))
    assert shares["custom"] == pytest.approx((40 / 180, 0))


@pytest.mark.parametrize("name", ["operator_tree", "fluid_events"])
def test_equal_times_are_sorted_by_name(name: str) -> None:
    """The order does not depend on the order in which the names first occur."""
    rows = [host(each, "operator", 20 * at, 10) for at, each in enumerate(("b", "c", "a", "d"))]
    rows += [host(each, "operator_detail", 1 + 2 * at, 1) for at, each in enumerate(("z", "x", "y"))]
    orders = [summarize(trace(found), name)["name"].to_list() for found in (rows, rows[::-1])]
    assert orders == [["a", "b", "x", "y", "z", "c", "d"]] * 2


def test_unowned_device_work_has_no_share_of_host_time() -> None:
    table = operator_kinds.table(trace([device("k", "kernel", 0, 5)]), ViewRequest())
    assert table["self_cpu_ratio"].isna().all()
    assert table["self_device_ratio"].tolist() == [1.0]


def test_nested_calls_of_a_canonical_name_count_once() -> None:
    """An add lies in a matmul, which lies in another add. Only the outer add counts for the canonical name."""
    found = trace([
        host("add", "operator", 0, 100), host("mm", "operator", 10, 80), host("add", "operator", 20, 10),
        host("x", "operator", 95, 1),
    ], names=NAMES)  # fmt: skip
    rows = lines(operator_kinds.VIEW, found, "depth name calls total_cpu_ns")
    assert (0, "add", 1, 100) in rows
    assert (1, "add", 2, 110) in rows
    assert (0, "matmul", 1, 80) in rows
