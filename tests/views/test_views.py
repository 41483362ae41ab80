"""All views over one small trace. The expected numbers were computed by hand.

The trace has two steps of 1,000 ns. The first step has data loading, a forward pass (two operators, two overlapping
kernels), a backward pass (a graph launch of three kernels) and an optimizer (one copy). The second step has one
operator on another thread, and its kernel ends after the step. One more kernel has no launch.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.base.language.messages import Message
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views import VIEWS
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace

VIEW = {view.name: view for view in VIEWS}
ROWS = [
    host("step 0", "step", 0, 1000, step=0),
    host("load", "dataloader", 0, 100, phase="dataloader"),
    host("fwd", "forward", 100, 300, phase="forward"),
    host("mm", "operator", 110, 200, shapes="[[2,3]]"),
    host("copy_", "operator", 120, 30),
    host("launch", "runtime", 200, 20, correlation=1),
    host("add", "operator", 320, 40),
    host("launch", "runtime", 330, 10, correlation=2),
    host("bwd", "backward", 400, 300, phase="backward"),
    host("mm_bwd", "operator", 450, 200),
    host("graph", "runtime", 500, 10, correlation=3),
    host("opt", "optimizer", 700, 200, phase="optimizer"),
    host("sgd", "operator", 710, 90),
    host("copy", "runtime", 720, 10, correlation=4),
    device("k1", "kernel", 250, 100, correlation=1),
    device("k2", "kernel", 300, 100, correlation=2, stream=8),
    device("g1", "kernel", 600, 50, correlation=3),
    device("g3", "kernel", 640, 20, correlation=3, stream=8),
    device("g2", "kernel", 650, 50, correlation=3),
    device("cpy", "memcpy", 900, 50, correlation=4, bytes=1000, copy_kind="HtoD pinned"),
    host("step 1", "step", 1000, 1000, step=1),
    host("user", "annotation", 1050, 250, tid=2),
    host("mm", "operator", 1100, 100, tid=2, shapes="[[4,5]]"),
    host("launch", "runtime", 1110, 10, tid=2, correlation=5),
    device("k1", "kernel", 1990, 100, correlation=5),
    device("lost", "kernel", 2200, 10),
]


@pytest.fixture(scope="module")
def small() -> Trace:
    return trace(ROWS, names={"mm": "matmul", "mm_bwd": "matmul_grad", "add": "add"}.get)


def table(found: Trace, view: str, **request: Any) -> pd.DataFrame:
    return table_of(VIEW[view], found, ViewRequest(**request))


def by_name(found: Trace, view: str, columns: str, key: str = "name", **request: Any) -> dict[Any, tuple[Any, ...]]:
    """Return the rows of a view by their key, as tuples of the given columns."""
    frame = table(found, view, **request)
    return {
        row[key]: tuple(None if pd.isna(row[c]) else row[c] for c in columns.split()) for _, row in frame.iterrows()
    }


def test_the_trace_itself_is_sound(small: Trace) -> None:
    check_trace(small)


@pytest.mark.parametrize("name", VIEW)
def test_every_view_keeps_the_contract_of_views(small: Trace, name: str) -> None:
    check_view(VIEW[name], small)


def test_values_of_operators_computed_by_hand(small: Trace) -> None:
    columns = "op_name calls self_cpu_ns total_cpu_ns avg_cpu_ns min_cpu_ns max_cpu_ns self_device_ns total_device_ns"
    assert by_name(small, "operators", columns) == {
        "mm": ("matmul", 2, 150 + 90, 300, 150, 100, 200, 200, 200),
        "copy_": (None, 1, 30, 30, 30, 30, 30, 0, 0),
        "add": ("add", 1, 30, 40, 40, 40, 40, 100, 100),
        "mm_bwd": ("matmul_grad", 1, 190, 200, 200, 200, 200, 120, 120),
        "sgd": (None, 1, 80, 90, 90, 90, 90, 50, 50),
        "(no launch recorded)": (None, None, None, None, None, None, None, 10, 10),
    }
    ratios = table(small, "operators").set_index("name")["self_cpu_ratio"]
    assert ratios["mm"] == pytest.approx(240 / 570)
    assert ratios.sum() == pytest.approx(1)


def test_a_graph_launch_gives_its_kernels_to_its_operator(small: Trace) -> None:
    """Three kernels have the same correlation id, and two of them overlap. Times are sums over streams, as in native
    tables."""
    assert by_name(small, "operators", "self_device_ns", pattern="^mm_bwd$") == {"mm_bwd": (50 + 20 + 50,)}


def test_kernels_count_once_as_self_and_in_all_parents_as_total() -> None:
    rows = [
        host("outer", "operator", 0, 100),
        host("inner", "operator", 10, 50),
        host("launch", "runtime", 20, 5, correlation=1),
        host("launch", "runtime", 70, 5, correlation=2),
        device("a", "kernel", 200, 30, correlation=1),
        device("b", "kernel", 300, 7, correlation=2),
    ]
    assert by_name(trace(rows), "operators", "self_device_ns total_device_ns") == {"outer": (7, 37), "inner": (30, 30)}


def test_an_operator_that_only_calls_itself_again_is_one_call() -> None:
    rows = [host("mm", "operator", 0, 100), host("mm", "operator", 10, 80), host("mm", "operator", 20, 10)]
    assert by_name(trace(rows), "operators", "calls self_cpu_ns total_cpu_ns") == {"mm": (1, 100, 100)}


def test_recursion_with_other_children_is_several_calls_but_counts_once_in_totals() -> None:
    """A call inside a call of the same name is a part of its total. On another thread, it is not inside."""
    rows = [
        host("f", "operator", 0, 100),
        host("f", "operator", 10, 50, shapes="[[2]]"),
        host("f", "operator", 15, 5, tid=2),
        host("cudaLaunchKernel", "runtime", 20, 5, correlation=1),
        host("g", "operator", 70, 10),
        host("f", "operator", 72, 6),
        device("kernel", "kernel", 200, 30, 1),
    ]
    found = by_name(trace(rows), "operators", "calls self_cpu_ns total_cpu_ns total_device_ns min_cpu_ns max_cpu_ns")
    assert found == {"f": (4, 40 + 45 + 5 + 6, 100 + 5, 30, 5, 100), "g": (1, 4, 10, 0, 10, 10)}
    by_shape = table(trace(rows), "operators", by=("shape",), pattern="^f$")
    assert sorted(by_shape["total_cpu_ns"]) == [50, 105]  # the inner call has a row of its own


def test_operators_by_shape_and_by_thread(small: Trace) -> None:
    by_shape = table(small, "operators", by=("shape",), pattern="^mm$")
    assert dict(zip(by_shape["shapes"], by_shape["total_cpu_ns"], strict=True)) == {"[[2,3]]": 200, "[[4,5]]": 100}
    by_thread = table(small, "operators", by=("thread",), pattern="^mm$")
    assert dict(zip(by_thread["tid"], by_thread["total_device_ns"], strict=True)) == {1: 100, 2: 100}
    both = table(small, "operators", by=("shape", "thread"))
    assert set(both["shapes"][both["name"] == "add"].isna()) == {True}
    assert len(both) == 6 + 1  # the kernel without a launch


def test_operators_by_stack_from_the_python_frames_around_them() -> None:
    rows = [
        host("train.py(1): main", "python", 0, 100),
        host("model.py(5): forward", "python", 10, 50),
        host("mm", "operator", 20, 10),
        host("mm", "operator", 70, 10),
        host("mm", "operator", 200, 10),
    ]
    found = table(trace(rows), "operators", by=("stack",))
    stacks = [None if pd.isna(stack) else stack for stack in found["stack"]]
    assert stacks == ["model.py(5): forward;train.py(1): main", "train.py(1): main", None]
    assert found["calls"].tolist() == [1, 1, 1]


def test_operators_by_stack_as_recorded() -> None:
    rows = [host("mm", "operator", 20, 10, stack="a;b"), host("mm", "operator", 40, 10, stack="a;c")]
    assert set(table(trace(rows), "operators", by=("stack",))["stack"]) == {"a;b", "a;c"}


def test_values_of_kernels_computed_by_hand(small: Trace) -> None:
    assert by_name(small, "kernels", "calls total_device_ns avg_device_ns min_device_ns max_device_ns") == {
        "k1": (2, 200, 100, 100, 100),
        "k2": (1, 100, 100, 100, 100),
        "g1": (1, 50, 50, 50, 50),
        "g2": (1, 50, 50, 50, 50),
        "g3": (1, 20, 20, 20, 20),
        "lost": (1, 10, 10, 10, 10),
    }
    assert table(small, "kernels").set_index("name")["ratio"]["k1"] == pytest.approx(200 / 430)


def test_values_of_copies_computed_by_hand(small: Trace) -> None:
    (row,) = table(small, "memcpy").to_dict("records")
    assert row["bytes_per_s"] == 1000 * 10**9 // 50
    assert (row["kind"], row["copy_kind"], row["device"]) == ("memcpy", "HtoD pinned", "cuda:0")
    assert (row["calls"], row["bytes"], row["total_device_ns"]) == (1, 1000, 50)


def test_copies_without_a_size_have_no_bandwidth() -> None:
    rows = [
        device("a", "memcpy", 0, 10, bytes=100, copy_kind="HtoD"),
        device("b", "memcpy", 20, 90, copy_kind="HtoD"),
        device("c", "memcpy", 200, 5, copy_kind="DtoH"),
        device("d", "memset", 300, 0, bytes=8),
    ]
    found = by_name(trace(rows), "memcpy", "calls bytes total_device_ns bytes_per_s", key="copy_kind")
    assert found["HtoD"] == (2, 100, 100, 100 * 10**9 // 10)  # only copies with recorded bytes count
    assert found["DtoH"] == (1, None, 5, None)
    memset = table(trace(rows), "memcpy").iloc[2]
    assert (memset["kind"], memset["bytes"]) == ("memset", 8)
    assert pd.isna(memset["bytes_per_s"])


def test_values_of_the_overview_computed_by_hand(small: Trace) -> None:
    """Times are unions, so overlapping kernels and nested operators count once. Launches outside steps also count."""
    found = by_name(small, "overview", "place calls time_ns", key="kind")
    assert found == {
        "step": ("host", 2, 2000),
        "dataloader": ("host", 1, 100),
        "forward": ("host", 1, 300),
        "backward": ("host", 1, 300),
        "optimizer": ("host", 1, 200),
        "operator": ("host", 6, 200 + 40 + 200 + 90 + 100),
        "runtime": ("host", 5, 60),
        "annotation": ("host", 1, 250),
        "kernel": ("device", 7, 150 + 100 + 100 + 10),
        "memcpy": ("device", 1, 50),
    }
    ratios = table(small, "overview").set_index("kind")["ratio"]
    assert ratios["operator"] == pytest.approx(630 / 2000)


def test_a_share_of_the_steps_is_of_what_runs_in_them() -> None:
    """The first step launches more work than it can run. A part of this work runs in the second step and counts
    there."""
    rows = [
        host("step 0", "step", 0, 100, step=0),
        host("op", "operator", 0, 50),
        host("launch", "runtime", 10, 5, correlation=1),
        host("launch", "runtime", 20, 5, correlation=2),
        host("step 1", "step", 100, 100, step=1),
        host("launch", "runtime", 110, 5, correlation=3),
        device("k1", "kernel", 40, 100, 1),
        device("k2", "kernel", 140, 50, 2),
        device("k3", "kernel", 190, 200, 3),
    ]
    found = trace(rows)

    def kernels(found: Trace, *steps: int) -> tuple[Any, ...]:
        overview = table(found, "overview", steps=steps or None).set_index("kind")
        return tuple(overview.loc["kernel", ["calls", "time_ns", "ratio"]])

    assert kernels(found) == kernels(found, 0, 1) == (3, 350, 160 / 200)
    assert kernels(found, 0) == (2, 150, 60 / 100)
    assert kernels(found, 1) == (1, 200, 100 / 100)
    (busy,) = table(found, "device", steps=(0,))["busy_in_steps_ratio"]
    assert busy == 60 / 100
    two = [trace(rows, rank=0), trace(rows, rank=1)]
    assert kernels(concat_traces(two), 0) == (4, 300, 120 / 200)
    how, request = reduction(VIEW["overview"]), ViewRequest(steps=(0,))
    merged = how.merge([how.reduce(one, request) for one in two], request)
    assert merged.equals(table(concat_traces(two), "overview", steps=(0,)))


def test_overview_by_category() -> None:
    rows = [host("a", "operator", 0, 10, category="cpu_op"), host("b", "annotation", 5, 10, category="user"),
            host("c", "operator", 20, 5, category="user")]  # fmt: skip
    assert by_name(trace(rows), "overview", "calls time_ns", key="category", by=("category",)) == {
        "cpu_op": (1, 10),
        "user": (2, 15),
    }


def test_values_of_devices_computed_by_hand(small: Trace) -> None:
    (row,) = table(small, "device").to_dict("records")
    assert (row["device"], row["kernels"], row["busy_ns"], row["span_ns"]) == ("cuda:0", 7, 360, 2000)
    assert row["utilisation_ratio"] == pytest.approx(360 / 2000)
    assert row["busy_in_steps_ratio"] == pytest.approx((150 + 100 + 10) / 2000)


@pytest.mark.parametrize("native", [False, True])
def test_a_device_is_busy_with_work_of_an_earlier_step(native: bool) -> None:
    """The kernel of step 0 runs from 900 to 1300, and the kernel of step 1 from 1900 to 2500. Step 1 lasts from 1000 to
    2000."""
    rows = [host("s0", "step", 0, 1000), host("run", "operator", 10, 80),
            host("launch", "runtime", 20, 10, correlation=1),
            host("s1", "step", 1000, 1000), host("run", "operator", 1010, 80),
            host("launch", "runtime", 1020, 10, correlation=2),
            device("k0", "kernel", 900, 400, 1), device("k1", "kernel", 1900, 600, 2)]  # fmt: skip
    steps = trace(rows)
    (row,) = table(steps, "device", steps=(1,), native=native).to_dict("records")
    assert (row["kernels"], row["busy_ns"], row["span_ns"]) == (2, 400, 1000)
    assert row["utilisation_ratio"] == row["busy_in_steps_ratio"] == pytest.approx(0.4)
    (both,) = table(steps, "device", steps=(0, 1), native=native).to_dict("records")
    (whole,) = table(steps, "device", native=native).to_dict("records")
    assert both["busy_in_steps_ratio"] == whole["busy_in_steps_ratio"] == pytest.approx(0.25)


def test_a_device_that_only_copies_has_no_busy_time() -> None:
    """In the second step of the trace, only a copy ran on the device."""
    rows = [*ROWS[:-3], device("cpy", "memcpy", 1990, 10, correlation=5, bytes=1)]
    (row,) = table(trace(rows), "device", steps=(1,)).to_dict("records")
    assert (row["kernels"], row["busy_ns"]) == (0, 0)


def test_values_of_steps_computed_by_hand(small: Trace) -> None:
    columns = "start_ns dur_ns dataloader_ns forward_ns backward_ns optimizer_ns device_launched_ns"
    assert by_name(small, "steps", columns, key="step") == {
        0: (0, 1000, 100, 300, 300, 200, 150 + 100 + 50),
        1: (1000, 1000, 0, 0, 0, 0, 100),
    }


def test_values_of_phases_computed_by_hand(small: Trace) -> None:
    found = by_name(small, "model", "calls total_cpu_ns total_device_ns", key="phase")
    assert found == {
        "step": (2, 2000, 150 + 100 + 50 + 100),
        "dataloader": (1, 100, 0),
        "forward": (1, 300, 150),
        "backward": (1, 300, 100),
        "optimizer": (1, 200, 50),
        "other": (None, 1100, 100),
        "unlaunched": (None, None, 10),
    }
    ratios = table(small, "model").set_index("phase")
    assert ratios["cpu_ratio"]["other"] == pytest.approx(0.55)
    assert ratios["device_ratio"]["forward"] == pytest.approx(150 / 400)


def test_values_of_annotations_computed_by_hand(small: Trace) -> None:
    found = by_name(small, "annotations", "kind calls self_cpu_ns total_cpu_ns self_device_ns total_device_ns")
    assert found == {
        "user": ("annotation", 1, 150, 250, 0, 100),
        "load": ("dataloader", 1, 100, 100, 0, 0),
        "fwd": ("forward", 1, 60, 300, 0, 200),
        "bwd": ("backward", 1, 100, 300, 0, 120),
        "opt": ("optimizer", 1, 110, 200, 0, 50),
    }


def test_a_step_filter_takes_the_device_work_of_the_step_with_it(small: Trace) -> None:
    assert set(by_name(small, "operators", "calls", steps=(1,))) == {"mm"}
    assert by_name(small, "kernels", "calls total_device_ns", steps=(1,)) == {"k1": (1, 100)}
    assert set(by_name(small, "kernels", "calls", steps=(0,))) == {"k1", "k2", "g1", "g2", "g3"}
    assert by_name(small, "steps", "dur_ns", key="step", steps=(1,)) == {1: (1000,)}
    assert by_name(small, "model", "total_cpu_ns", key="phase", steps=(1,)) == {"step": (1000,), "other": (1000,)}
    (row,) = table(small, "device", steps=(0,)).to_dict("records")
    assert (row["kernels"], row["busy_ns"], row["span_ns"]) == (5, 250, 1000)
    assert table(small, "overview", steps=(0, 1)).set_index("kind")["calls"]["kernel"] == 6


@pytest.mark.parametrize("name", VIEW)
def test_a_step_that_was_not_recorded_is_a_usage_error(small: Trace, name: str) -> None:
    with pytest.raises(UsageError, match=r"step 7 was not recorded.*recorded steps: 0, 1"):
        table(small, name, steps=(0, 7))


@pytest.mark.parametrize("name", ["operators", "kernels", "memcpy", "overview", "annotations"])
def test_a_pattern_filters_by_name_or_is_a_usage_error(small: Trace, name: str) -> None:
    assert len(table(small, name, pattern="no such name")) == 0
    whole = int(table(small, name)["calls"].sum())
    assert int(table(small, name, pattern=".")["calls"].sum()) == whole
    for bad in ("(", "[", "*", "(?<=a)b", "\udcff"):  # the last is a byte of a command line that is not UTF-8
        with pytest.raises(UsageError, match="not a regular expression"):
            table(small, name, pattern=bad)


def test_a_pattern_that_hangs_other_engines_does_not_hang() -> None:
    """RE2 is linear in the length of the name. An engine with backtracking would practically never finish."""
    rows = [host("a" * 5000 + "!", "operator", 0, 1)]
    assert len(table(trace(rows), "operators", pattern="^(a+)+$")) == 0


def test_ranks_are_added_up_and_never_united() -> None:
    """Two ranks have the same clock readings. Their times are added, and each step has two rows."""
    both = concat_traces([trace(ROWS, rank=0), trace(ROWS, rank=1)])
    assert by_name(both, "overview", "calls time_ns", key="kind")["kernel"] == (14, 720)
    assert by_name(both, "operators", "calls total_cpu_ns")["mm"] == (4, 600)
    steps = table(both, "steps")
    assert steps["rank"].tolist() == [0, 0, 1, 1]
    assert steps["forward_ns"].tolist() == [300, 0, 300, 0]
    assert steps["device_launched_ns"].tolist() == [300, 100, 300, 100]
    assert by_name(both, "model", "total_cpu_ns total_device_ns", key="phase")["other"] == (2200, 200)
    assert by_name(both, "device", "busy_ns span_ns", key="device") == {"cuda:0": (720, 4000)}


def _plain_cell(cell: Any) -> Any:
    return str(cell) if isinstance(cell, Message) else cell


def test_order_and_repetition_do_not_change_a_table(small: Trace) -> None:
    """A trace with rows in another order gives the same tables."""
    again = trace(list(reversed(ROWS)), names={"mm": "matmul", "mm_bwd": "matmul_grad", "add": "add"}.get)
    for view in VIEWS:
        left, right = (table_of(view, found, ViewRequest()) for found in (small, again))
        left, right = (frame.map(_plain_cell) for frame in (left, right))
        keys = list(left.columns)
        pd.testing.assert_frame_equal(*(frame.sort_values(keys, ignore_index=True) for frame in (left, right)))
