"""The views ``kernels``, ``memcpy`` and ``memory_manipulation``, against numbers worked out by hand."""

from __future__ import annotations

import json

import pytest

from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.devices import kernels
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import memory_manipulation
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_table

FIRST = json.dumps({"grid": [8, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 1024,
                    "est. achieved occupancy %": 50}, separators=(",", ":"))  # fmt: skip
SECOND = json.dumps({"block": [64, 2, 1], "grid": [4, 4, 1], "theoretical achieved occupancy %": 12.5})
ROWS = [
    host("mm", "operator", 0, 100),
    host("launch", "runtime", 10, 5, correlation=1),
    host("launch", "runtime", 20, 5, correlation=2),
    host("lib::copy_", "operator", 120, 60),
    host("rtMemcpyAsync", "runtime", 130, 20, correlation=3),
    host("MemcpyAsync:CPU->GPU", "operator_detail", 190, 10, category="UserDefined"),
    host("my memset", "annotation", 300, 50, category="PythonUserDefined"),
    host("launch", "runtime", 310, 5, correlation=4),
    device("gemm<float, 4>(int, float*)", "kernel", 400, 10, correlation=1, args=FIRST),
    device("gemm<float, 4>(int, float*)", "kernel", 420, 30, correlation=2, args=SECOND, stream=8, device="cuda:1"),
    device("Memcpy HtoD", "memcpy", 460, 40, correlation=3, bytes=4000, copy_kind="HtoD"),
    device("Memset", "memset", 520, 5, correlation=4, bytes=16),
    device("plain", "kernel", 600, 2),
]


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace(ROWS)


@pytest.mark.parametrize(
    "view", [kernels.VIEW, kernels.MEMCPY_VIEW, memory_manipulation.VIEW], ids=lambda view: view.name
)
def test_the_views_keep_their_contract(view: View, small: Trace) -> None:
    check_view(view, small)


def test_kernels_and_copies(small: Trace) -> None:
    """Natively, kernels of all devices are one row, without parameters. The rows of memory manipulation are an operator
    that copies, its runtime call, and a detail and a label whose names contain memcpy or memset."""
    shares = trace([
        host("step", "step", 0, 1000, step=0),
        host("rtMemcpy", "runtime", 100, 200, correlation=1),
        device("copy", "memcpy", 300, 30, correlation=1),
        host("launch", "runtime", 400, 10, correlation=2),
        device("k", "kernel", 500, 90, correlation=2),
    ])  # fmt: skip
    check_tables("views/kernels.txt", {
        "kernels by launch": view_table("kernels", small, by=("launch",)),
        "by operator, stream and device": view_table("kernels", small, by=("operator", "stream", "device")),
        "native": view_table("kernels", small, native=True),
        "copies by operator": view_table("memcpy", small, by=("operator",)),
        "memory_manipulation": view_table("memory_manipulation", small),
        "memory_manipulation, native": view_table("memory_manipulation", small, native=True),
        "memory_manipulation has shares of the steps": view_table("memory_manipulation", shares),
    })  # fmt: skip


def test_a_hostile_name_is_shortened_in_linear_time() -> None:
    """A backtracking regular expression engine would take time that grows with the cube of the name's length."""
    name = "<" * 3000 + "(" * 3000
    table = table_of(kernels.VIEW, trace([device(name, "kernel", 0, 1)]), ViewRequest(native=True))
    assert table["name"].tolist() == [name]


def test_operators_with_similar_names_are_not_copies() -> None:
    names = ["lib::copyright", "lib::photocopy_x", "lib::to", "lib::detach"]
    found = trace([host(name, "operator", 100 * i, 10) for i, name in enumerate(names)])
    assert table_of(memory_manipulation.VIEW, found, ViewRequest()).empty
    assert "named like a memory copy" in str(memory_manipulation.VIEW.explain_empty(found))


def test_the_bandwidth_of_many_gigabytes() -> None:
    """30 GB in 20 ms: the bytes times 10**9 do not fit in 64 bits."""
    rows = [device("Memcpy DtoD", "memcpy", 0, 20_000_000, bytes=30_000_000_000, copy_kind="DtoD")]
    assert table_of(kernels.MEMCPY_VIEW, trace(rows), ViewRequest())["bytes_per_s"].tolist() == [1_500_000_000_000]
