"""The views ``operator_tree`` and ``operator_kinds``, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from perfkit_core.api import summarize
from perfkit_core.plugins.contracts import View
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.operators import operator_kinds, operator_tree
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_rows, view_table

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


@pytest.mark.parametrize("view", [operator_tree.VIEW, operator_kinds.VIEW], ids=lambda view: view.name)
def test_the_views_keep_their_contract(view: View, small: Trace) -> None:
    check_view(view, small)


def test_the_tree_and_the_kinds_of_the_small_trace(small: Trace) -> None:
    """Shares are of the row above. The FLOPs of mm are a part of those of linear. mm lies inside linear and has the
    same canonical name, so that calls and total time of this name come from linear only, and its self time from both.
    Natively, every operator is a root, rows below a root are not operators, and device work that no operator launched
    is left out. A name filter makes the matching operators roots."""
    check_tables("views/operator_tree.txt", {
        "operator_tree": view_table("operator_tree", small),
        "native": view_table("operator_tree", small, native=True),
        "native, by thread": view_table("operator_tree", small, by=("thread",), native=True),
        "pattern ^mm$": view_table("operator_tree", small, pattern="^mm$"),
        "operator_kinds": view_table("operator_kinds", small),
    })  # fmt: skip


@pytest.mark.parametrize("name", ["operator_tree", "fluid_events"])
def test_equal_times_are_sorted_by_name(name: str) -> None:
    """The order does not depend on the order in which the names first occur."""
    rows = [host(each, "operator", 20 * at, 10) for at, each in enumerate(("b", "c", "a", "d"))]
    rows += [host(each, "operator_detail", 1 + 2 * at, 1) for at, each in enumerate(("z", "x", "y"))]
    orders = [summarize(trace(found), name)["name"].to_list() for found in (rows, rows[::-1])]
    assert orders == [["a", "b", "x", "y", "z", "c", "d"]] * 2


def test_unowned_device_work_has_no_share_of_host_time() -> None:
    found = trace([device("k", "kernel", 0, 5)])
    assert view_rows("operator_kinds", found, "self_cpu_ratio self_device_ratio") == [(None, 1.0)]


def test_nested_calls_of_a_canonical_name_count_once() -> None:
    """An add lies in a matmul, which lies in another add. Only the outer add counts for the canonical name."""
    found = trace([
        host("add", "operator", 0, 100), host("mm", "operator", 10, 80), host("add", "operator", 20, 10),
        host("x", "operator", 95, 1),
    ], names=NAMES)  # fmt: skip
    rows = view_rows("operator_kinds", found, "depth name calls total_cpu_ns")
    assert {(0, "add", 1, 100), (1, "add", 2, 110), (0, "matmul", 1, 80)} < set(rows)
