"""The report of Paddle 1.x over a small trace. The expected numbers were computed by hand.

Thread 1 has two convolutions with recorded phases, one of them with a kernel of 50 ns. Thread 2 has an addition without
phases, which copies for 30 ns and runs a kernel of 20 ns, and a product that allocates memory. Two copies are outside
operators: a synchronous copy of 7 ns, and a copy of 3 ns whose launch was not recorded.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.errors import UsageError
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.builtin import VIEWS
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_rows, view_table

VIEW = {view.name: view for view in VIEWS if view.group == "fluid"}
NAMES = {"conv": "conv", "add": "add", "mm": "matmul", "empty": "fill", "view": "reshape"}
ROWS = [
    host("conv", "operator", 0, 100),
    host("conv infer_meta", "operator_detail", 5, 10),
    host("conv compute", "operator_detail", 20, 60),
    host("launch", "runtime", 30, 10, correlation=1),
    host("conv", "operator", 100, 50),
    host("conv compute", "operator_detail", 110, 30),
    host("add", "operator", 10, 30, tid=2),
    host("cudaMemcpyAsync", "runtime", 20, 5, tid=2, correlation=2),
    host("launch", "runtime", 30, 2, tid=2, correlation=3),
    host("mm", "operator", 200, 100, tid=2),
    host("empty", "operator", 210, 10, tid=2),
    host("cudaMemcpy", "runtime", 400, 10, tid=2, correlation=4),
    device("k1", "kernel", 500, 50, correlation=1),
    device("copy", "memcpy", 600, 30, correlation=2, copy_kind="HtoD pinned"),
    device("k2", "kernel", 700, 20, correlation=3),
    device("copy", "memcpy", 800, 7, correlation=4, copy_kind="DtoH"),
    device("copy", "memcpy", 900, 3, copy_kind="DtoD"),
]


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace(ROWS, names=NAMES.get)


@pytest.mark.parametrize("name", VIEW)
def test_the_views_keep_the_contract_of_views(small: Trace, name: str) -> None:
    check_view(VIEW[name], small)
    assert VIEW[name].group == "fluid"


def test_all_fluid_views_of_the_small_trace(small: Trace) -> None:
    """Computation is the sum of four parts: compute phases of 50 and 30, the operator without children (23), and the
    product (100). Threads are numbered by their first event: the thread of the convolutions is the first. A pattern
    selects operators and their parts; events that match outside the selected operators have no row."""
    requests: list[tuple[str, dict[str, Any]]] = [
        *((name, {}) for name in VIEW),
        *(("fluid_events", {"by": by}) for by in (("thread",), ("instance",), ("thread", "instance"))),
        ("fluid_events", {"pattern": "^conv$|compute$"}),
        *((name, {"pattern": "compute$"}) for name in ("fluid_events", "fluid_overhead")),
        ("fluid_head", {"by": ("thread", "instance"), "sort": "calls"}),
    ]
    tables = {
        ", ".join([name, *(f"{key} {value}" for key, value in asked.items())]): view_table(name, small, **asked)
        for name, asked in requests
    }
    check_tables("views/fluid.txt", tables)


def test_computation_and_overhead() -> None:
    def made(*rows: dict[str, Any]) -> Trace:
        return trace(list(rows), names=NAMES.get)

    cases = {
        "device time of copies outside computation is overhead": made(
            host("conv", "operator", 0, 100),
            host("conv prepare_data", "operator_detail", 10, 20),
            host("cudaMemcpyAsync", "runtime", 12, 4, correlation=1),
            host("conv compute", "operator_detail", 40, 50),
            device("copy", "memcpy", 200, 30, correlation=1, copy_kind="HtoD"),
        ),
        "a conv calls a conv, and the innermost computes, including its allocations; a reshape is no arithmetic": made(
            host("view", "operator", 0, 100),
            host("conv", "operator", 10, 80),
            host("conv", "operator", 20, 60),
            host("empty", "operator", 30, 5),
            host("view", "operator", 85, 3),
        ),
        "an unknown operator computes": made(
            host("vendor::op", "operator", 0, 100), host("empty", "operator", 10, 5)
        ),
        "unless an operator inside does": made(host("vendor::op", "operator", 0, 100), host("mm", "operator", 10, 5)),
        "operators that overlap without nesting cover 150, two kernels of a stream 60, and one of another 40": made(
            host("add", "operator", 0, 100),
            host("mm", "operator", 50, 100),
            host("launch", "runtime", 60, 10, correlation=1),
            device("a", "kernel", 200, 40, correlation=1),
            device("b", "kernel", 220, 40, correlation=1),
            device("c", "kernel", 210, 40, correlation=1, stream=8),
        ),
        "without a device, runtime calls have no row": made(host("add", "operator", 0, 100)),
        "without operators, there are no rows": made(
            host("cudaMemcpy", "runtime", 0, 5, correlation=1), device("copy", "memcpy", 9, 5, correlation=1)
        ),
    }  # fmt: skip
    check_tables("views/fluid_overhead.txt", {name: view_table("fluid_overhead", each) for name, each in cases.items()})


def test_copies_and_events() -> None:
    copy = device("copy", "memcpy", 200, 5, correlation=1)
    call = host("cudaMemcpyAsync", "runtime", 20, 5, correlation=1)
    labelled = trace([host("GpuMemcpySync:GPU->CPU", "annotation", 10, 50), call, copy])
    launched = trace([
        host("aten::copy_", "operator", 10, 50, correlation=1),
        device("MEMCPY_ASYNC", "memcpy", 200, 5, correlation=1),
        device("copy", "memcpy", 210, 3),
    ])  # fmt: skip
    threads = trace([host("add", "operator", start, 10, tid=tid) for start, tid in ((0, 1), (20, 2), (40, 1))])
    steps = trace([
        host("step 0", "step", 0, 100, step=0),
        host("add", "operator", 10, 30),
        host("step 1", "step", 100, 100, step=1),
        host("add", "operator", 110, 50),
        host("mm", "operator", 170, 20),
    ], names=NAMES.get)  # fmt: skip
    again = trace([host("mm", "operator", 0, 100), host("mm", "operator", 10, 80), host("empty", "operator", 20, 5)])
    graph = trace([
        host("add", "operator", 0, 100),
        host("graph", "runtime", 10, 5, correlation=1),
        device("k", "kernel", 200, 5, correlation=1),
        device("c", "memcpy", 210, 5, correlation=1, copy_kind="HtoD"),
    ])  # fmt: skip
    check_tables("views/fluid_events.txt", {
        "the framework's copy kind goes before the calls": view_table("fluid_memcpy", labelled),
        "without it, the call decides": view_table("fluid_memcpy", trace([call, copy])),
        "without a call, the copy decides": view_table("fluid_memcpy", launched),
        "instances are numbered over all threads": view_table("fluid_events", threads, by=("instance",)),
        "or per thread": view_table("fluid_events", threads, by=("instance", "thread")),
        "a chosen step": view_table("fluid_events", steps, steps=(1,)),
        "overhead of a chosen step": view_table("fluid_overhead", steps, steps=(0,)),
        "a pattern": view_table("fluid_events", steps, pattern="^add$"),
        "overhead of a pattern": view_table("fluid_overhead", steps, pattern="^add$"),
        "a redispatch is one event": view_table("fluid_events", again),
        "a graph launch with copies and kernels is no copy": view_table("fluid_events", graph),
    })  # fmt: skip


MEASURES = ("calls", "total_ns", "cpu_ns", "device_ns", "min_ns", "max_ns", "avg_ns")


def test_levels_of_detail(small: Trace) -> None:
    assert summarize(small, "fluid_events", depth=0)["name"].tolist() == ["conv", "mm", "add"]
    assert summarize(small, "fluid_events", depth=1).equals(summarize(small, "fluid_events"))


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("column", [*MEASURES, "cpu_ratio", "device_ratio", "ratio"])
def test_every_column_sorts_operators_and_the_phases_of_each(small: Trace, column: str, ascending: bool) -> None:
    frame = summarize(small, "fluid_events", sort=column, ascending=ascending)
    everything = summarize(small, "fluid_events")
    pd.testing.assert_frame_equal(*(each.sort_values("name", ignore_index=True) for each in (frame, everything)))
    parts = [frame[frame["depth"] == 0]] + [part for _, part in frame.groupby((frame["depth"] == 0).cumsum())]
    for number, part in enumerate(parts):
        values = part[column].tolist() if number == 0 else part[column].tolist()[1:]
        assert values == sorted(values, reverse=not ascending)


def test_the_place_is_what_was_profiled() -> None:
    lonely = trace([device("k", "kernel", 0, 9)]).with_meta(devices=(Device("cuda:0", "Small GPU"),))
    for found, place in ((trace([host("add", "operator", 0, 9)]), "CPU"), (lonely, "GPU: cuda:0 (Small GPU)")):
        assert ("place", place) in view_rows("fluid_head", found, "setting value")


@pytest.mark.parametrize("name", ["head", "events"])
def test_other_groupings_are_refused(small: Trace, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be grouped by 'shape'"):
        view_table(f"fluid_{name}", small, by=("shape",))
