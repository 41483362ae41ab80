"""The report of Paddle 1.x over a small trace. The expected numbers were computed by hand.

Thread 1 has two convolutions with recorded phases, one of them with a kernel of 50 ns. Thread 2 has an addition without
phases, which copies for 30 ns and runs a kernel of 20 ns, and a product that allocates memory. Two copies are outside
operators: a synchronous copy of 7 ns, and a copy of 3 ns whose launch was not recorded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pandas as pd
import pytest

from perfkit_core.api import summarize
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import VIEWS
from perfkit_core.views.fluid_overhead import OVERHEAD
from perfkit_core.views.merging import table_of
from tests.support.events import device, host, trace

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


def table(found: Trace, view: str, **request: Any) -> pd.DataFrame:
    return table_of(VIEW[f"fluid_{view}"], found, ViewRequest(**request))


def rows(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return list(frame[list(columns)].itertuples(index=False, name=None))


def overhead(found: Trace, **request: Any) -> dict[str, tuple[int, int]]:
    """Return the CPU time and the device time of each row."""
    frame = table(found, "overhead", **request)
    return {name: (cpu, gpu) for name, cpu, gpu in rows(frame, "name", "cpu_ns", "device_ns")}


@pytest.mark.parametrize("name", VIEW)
def test_the_views_keep_the_contract_of_views(small: Trace, name: str) -> None:
    check_view(VIEW[name], small)
    assert VIEW[name].group == "fluid"


def test_overhead_is_what_is_not_computation(small: Trace) -> None:
    """Computation is the sum of four parts: compute phases of 50 and 30, the operator without children (23), and the
    product (100)."""
    assert overhead(small) == {
        "total time": (280, 100),
        "computation": (80 + 23 + 100, 100),
        "framework overhead": (77, 0),
        "calls into the device's runtime": (17, 0),
    }
    frame = table(small, "overhead").set_index("name")
    assert frame["total_ns"].tolist() == [380, 303, 77, 17]
    assert frame.loc["computation", "ratio"] == pytest.approx(303 / 380)


def test_device_time_of_copies_outside_computation_is_overhead() -> None:
    found = trace(
        [
            host("conv", "operator", 0, 100),
            host("conv prepare_data", "operator_detail", 10, 20),
            host("cudaMemcpyAsync", "runtime", 12, 4, correlation=1),
            host("conv compute", "operator_detail", 40, 50),
            device("copy", "memcpy", 200, 30, correlation=1, copy_kind="HtoD"),
        ],
        names=NAMES.get,
    )
    assert overhead(found)["computation"] == (50, 0)
    assert overhead(found)["framework overhead"] == (50, 30)


def test_a_wrapper_is_overhead_except_for_its_computation() -> None:
    """A conv calls a conv, which calls a conv. The innermost conv computes, including its allocations. The reshape is
    no arithmetic."""
    found = trace(
        [
            host("view", "operator", 0, 100),
            host("conv", "operator", 10, 80),
            host("conv", "operator", 20, 60),
            host("empty", "operator", 30, 5),
            host("view", "operator", 85, 3),
        ],
        names=NAMES.get,
    )
    assert overhead(found)["computation"] == (60 + 3, 0)


def test_an_unknown_operator_computes_unless_one_inside_does() -> None:
    inside = [host("vendor::op", "operator", 0, 100), host("empty", "operator", 10, 5)]
    assert overhead(trace(inside, names=NAMES.get))["computation"] == (100, 0)
    around = [host("vendor::op", "operator", 0, 100), host("mm", "operator", 10, 5)]
    assert overhead(trace(around, names=NAMES.get))["computation"] == (5, 0)


def test_overlaps_are_united_and_overhead_is_not_negative() -> None:
    """Two operators that overlap without nesting cover 150. Two kernels on one stream cover 60, and a kernel on another
    stream 40."""
    found = trace(
        [
            host("add", "operator", 0, 100),
            host("mm", "operator", 50, 100),
            host("launch", "runtime", 60, 10, correlation=1),
            device("a", "kernel", 200, 40, correlation=1),
            device("b", "kernel", 220, 40, correlation=1),
            device("c", "kernel", 210, 40, correlation=1, stream=8),
        ],
        names=NAMES.get,
    )
    assert overhead(found)["total time"] == (150, 100)
    assert overhead(found)["framework overhead"] == (10, 0)


def test_overhead_without_a_device_has_no_row_of_runtime_calls() -> None:
    assert list(overhead(trace([host("add", "operator", 0, 100)]))) == list(OVERHEAD[:3])


def test_copies_by_launch_and_direction(small: Trace) -> None:
    found = rows(table(small, "memcpy"), "depth", "name", "calls", "total_ns")
    assert found == [
        (0, "GpuMemcpyAsync", 1, 30),
        (1, "CPU->GPU", 1, 30),
        (0, "GpuMemcpySync", 1, 7),
        (1, "GPU->CPU", 1, 7),
        (0, "GpuMemcpy (launch not recorded)", 1, 3),
        (1, "GPU->GPU same device", 1, 3),
    ]
    assert table(small, "memcpy")["ratio"].iloc[0] == pytest.approx(30 / 380)


def test_the_frameworks_copy_kind_goes_before_the_calls() -> None:
    copy = device("copy", "memcpy", 200, 5, correlation=1)
    call = host("cudaMemcpyAsync", "runtime", 20, 5, correlation=1)
    labelled = trace([host("GpuMemcpySync:GPU->CPU", "annotation", 10, 50), call, copy])
    assert rows(table(labelled, "memcpy"), "name") == [("GpuMemcpySync",), ("direction not recorded",)]
    assert rows(table(trace([call, copy]), "memcpy"), "name") == [("GpuMemcpyAsync",), ("direction not recorded",)]


def test_shares_of_copies_are_unknown_without_operators() -> None:
    found = trace([host("cudaMemcpy", "runtime", 0, 5, correlation=1), device("copy", "memcpy", 9, 5, correlation=1)])
    assert table(found, "memcpy")["ratio"].isna().all()
    assert table(found, "overhead").empty
    assert table(found, "events").empty


EVENTS = [
    (0, "conv", 2, 200, 150, 50, 50, 150, 100),
    (1, "conv compute", 2, 140, 90, 50, 30, 110, 70),
    (1, "conv infer_meta", 1, 10, 10, 0, 10, 10, 10),
    (0, "mm", 1, 100, 100, 0, 100, 100, 100),
    (1, "empty", 1, 10, 10, 0, 10, 10, 10),
    (0, "add", 1, 80, 30, 50, 80, 80, 80),
    (1, "cudaMemcpyAsync: CPU->GPU", 1, 35, 5, 30, 35, 35, 35),
]
MEASURES = ("calls", "total_ns", "cpu_ns", "device_ns", "min_ns", "max_ns", "avg_ns")


def test_values_of_events_computed_by_hand(small: Trace) -> None:
    frame = table(small, "events")
    assert rows(frame, "depth", "name", *MEASURES) == EVENTS
    conv = frame.iloc[0]
    assert (conv["cpu_ratio"], conv["device_ratio"], conv["ratio"]) == pytest.approx((0.75, 0.25, 200 / 380))
    assert frame["ratio"].iloc[1] == pytest.approx(140 / 380)


def test_events_by_thread(small: Trace) -> None:
    """Threads are numbered by their first event: the thread of the convolutions is the first."""
    names = table(small, "events", by=("thread",))["name"].tolist()
    assert names == [f"thread{0 if 'conv' in name else 1}::{name}" for _, name, *_ in EVENTS]


def test_events_by_instance(small: Trace) -> None:
    found = rows(table(small, "events", by=("instance",)), "name", "calls", "total_ns")
    assert found[:3] == [("conv_0", 1, 150), ("conv compute", 1, 110), ("conv infer_meta", 1, 10)]
    assert ("conv_1", 1, 50) in found
    both = table(small, "events", by=("thread", "instance"))["name"].tolist()
    assert both[0] == "thread0::conv_0"
    assert "thread1::add_0" in both


def test_instances_are_numbered_per_thread() -> None:
    found = trace([host("add", "operator", start, 10, tid=tid) for start, tid in ((0, 1), (20, 2), (40, 1))])
    assert sorted(table(found, "events", by=("instance",))["name"]) == ["add_0", "add_1", "add_2"]
    apart = table(found, "events", by=("instance", "thread"))["name"]
    assert sorted(apart) == ["thread0::add_0", "thread0::add_1", "thread1::add_0"]


def test_levels_of_detail(small: Trace) -> None:
    assert summarize(small, "fluid_events", depth=0)["name"].tolist() == ["conv", "mm", "add"]
    assert summarize(small, "fluid_events", depth=1)["name"].tolist() == [name for _, name, *_ in EVENTS]


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize("column", [*MEASURES, "cpu_ratio", "device_ratio", "ratio"])
def test_every_column_sorts_operators_and_the_phases_of_each(small: Trace, column: str, ascending: bool) -> None:
    frame = summarize(small, "fluid_events", sort=column, ascending=ascending)
    assert sorted(rows(frame, "name", *MEASURES)) == sorted(row[1:] for row in EVENTS)
    parts = [frame[frame["depth"] == 0]] + [part for _, part in frame.groupby((frame["depth"] == 0).cumsum())]
    for number, part in enumerate(parts):
        values = part[column].tolist() if number == 0 else part[column].tolist()[1:]
        assert values == sorted(values, reverse=not ascending)


def test_a_step_and_a_pattern_restrict_what_counts() -> None:
    found = trace(
        [
            host("step 0", "step", 0, 100, step=0),
            host("add", "operator", 10, 30),
            host("step 1", "step", 100, 100, step=1),
            host("add", "operator", 110, 50),
            host("mm", "operator", 170, 20),
        ],
        names=NAMES.get,
    )
    assert rows(table(found, "events", steps=(1,)), "name", "total_ns") == [("add", 50), ("mm", 20)]
    assert overhead(found, steps=(0,))["total time"] == (30, 0)
    assert rows(table(found, "events", pattern="^add$"), "name", "calls", "total_ns", "ratio") == [("add", 2, 80, 1.0)]
    assert overhead(found, pattern="^add$")["total time"] == (80, 0)


def test_a_pattern_selects_operators_and_their_parts(small: Trace) -> None:
    """Events that match outside the selected operators have no row, as in the view of the overhead."""
    assert rows(table(small, "events", pattern="^conv$|compute$"), "name") == [("conv",), ("conv compute",)]
    assert table(small, "events", pattern="compute$").empty
    assert table(small, "overhead", pattern="compute$").empty


def test_a_redispatch_is_one_event() -> None:
    found = trace([host("mm", "operator", 0, 100), host("mm", "operator", 10, 80), host("empty", "operator", 20, 5)])
    assert rows(table(found, "events"), "depth", "name", "calls", "total_ns") == [(0, "mm", 1, 100), (1, "empty", 1, 5)]


def test_a_graph_launch_with_copies_and_kernels_is_no_copy() -> None:
    found = trace(
        [
            host("add", "operator", 0, 100),
            host("graph", "runtime", 10, 5, correlation=1),
            device("k", "kernel", 200, 5, correlation=1),
            device("c", "memcpy", 210, 5, correlation=1, copy_kind="HtoD"),
        ]
    )
    assert rows(table(found, "events"), "name", "device_ns") == [("add", 10)]


def settings(found: Trace, **request: Any) -> dict[str, str]:
    return dict(rows(table(found, "head", **request), "setting", "value"))


def test_the_head_names_place_options_and_framework(small: Trace) -> None:
    found = settings(small)
    assert found["place"] == "All: CPU and cuda:0"
    assert (found["threads"], found["operator instances"], found["sorted by"]) == ("merged", "merged", "total_ns")
    assert (found["steps"], found["framework"]) == ("no steps were recorded", "fw")


def test_head_says_what_was_asked(small: Trace) -> None:
    found = settings(small, by=("thread", "instance"), sort="calls")
    assert (found["threads"], found["operator instances"], found["sorted by"]) == ("apart", "apart", "calls")
    assert (found["thread0"], found["thread1"]) == ("tid 1", "tid 2")


def test_the_place_is_what_was_profiled() -> None:
    assert settings(trace([host("add", "operator", 0, 9)]))["place"] == "CPU"
    lonely = trace([device("k", "kernel", 0, 9)])
    named = msgspec.structs.replace(lonely.meta, devices=(Device("cuda:0", "Small GPU"),))
    assert settings(replace(lonely, meta=named))["place"] == "GPU: cuda:0 (Small GPU)"


@pytest.mark.parametrize("name", ["head", "events"])
def test_other_groupings_are_refused(small: Trace, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be grouped by 'shape'"):
        table(small, name, by=("shape",))
