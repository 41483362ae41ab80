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
from perfkit_core.views.builtin import VIEWS
from perfkit_core.views.merging import reduction, table_of
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_rows, view_table

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


def test_the_trace_itself_is_sound(small: Trace) -> None:
    check_trace(small)


@pytest.mark.parametrize("name", VIEW)
def test_every_view_keeps_the_contract_of_views(small: Trace, name: str) -> None:
    check_view(VIEW[name], small)


def test_all_views_of_the_small_trace(small: Trace) -> None:
    """Three kernels of a graph launch belong to one operator, and two of them overlap. Times of operators are sums over
    streams, as in native tables. Times of the overview and of devices are unions."""
    tables = {view.name: view_table(view, small) for view in VIEWS if view.group != "fluid"}
    check_tables("views/small_trace.txt", {name: table for name, table in tables.items() if len(table)})


def test_groupings_and_chosen_steps_of_the_small_trace(small: Trace) -> None:
    """A chosen step has the device work that it launched."""
    requests: list[tuple[str, dict[str, Any]]] = [
        ("operators", {"by": ("shape",), "pattern": "^mm$"}),
        ("operators", {"by": ("thread",), "pattern": "^mm$"}),
        ("operators", {"by": ("shape", "thread")}),
        *((name, {"steps": (1,)}) for name in ("operators", "kernels", "steps", "model", "device")),
        *((name, {"steps": (0,)}) for name in ("kernels", "device")),
    ]
    tables = {
        f"{name}, {', '.join(f'{key} {value}' for key, value in asked.items())}": view_table(name, small, **asked)
        for name, asked in requests
    }
    check_tables("views/small_trace_requests.txt", tables)


def test_what_counts_once_and_what_is_unknown() -> None:
    times = "name calls self_cpu_ns total_cpu_ns min_cpu_ns max_cpu_ns self_device_ns total_device_ns"
    nested = trace([
        host("outer", "operator", 0, 100),
        host("inner", "operator", 10, 50),
        host("launch", "runtime", 20, 5, correlation=1),
        device("a", "kernel", 200, 30, correlation=1),
        host("launch", "runtime", 70, 5, correlation=2),
        device("b", "kernel", 300, 7, correlation=2),
    ])  # fmt: skip
    repeated = trace([
        host("mm", "operator", 0, 100),
        host("mm", "operator", 10, 80),
        host("mm", "operator", 20, 10),
    ])  # fmt: skip
    recursion = trace([
        host("f", "operator", 0, 100),
        host("f", "operator", 10, 50, shapes="[[2]]"),
        host("f", "operator", 15, 5, tid=2),
        host("cudaLaunchKernel", "runtime", 20, 5, correlation=1),
        host("g", "operator", 70, 10),
        host("f", "operator", 72, 6),
        device("kernel", "kernel", 200, 30, 1),
    ])  # fmt: skip
    frames = trace([
        host("train.py(1): main", "python", 0, 100),
        host("model.py(5): forward", "python", 10, 50),
        host("mm", "operator", 20, 10),
        host("mm", "operator", 70, 10),
        host("mm", "operator", 200, 10),
    ])  # fmt: skip
    stacks = trace([host("mm", "operator", 20, 10, stack="a;b"), host("mm", "operator", 40, 10, stack="a;c")])
    copies = trace([
        device("a", "memcpy", 0, 10, bytes=100, copy_kind="HtoD"),
        device("b", "memcpy", 20, 90, copy_kind="HtoD"),
        device("c", "memcpy", 200, 5, copy_kind="DtoH"),
        device("d", "memset", 300, 0, bytes=8),
    ])  # fmt: skip
    categories = trace([
        host("a", "operator", 0, 10, category="cpu_op"),
        host("b", "annotation", 5, 10, category="user"),
        host("c", "operator", 20, 5, category="user"),
    ])  # fmt: skip
    only_copies = trace([*ROWS[:-3], device("cpy", "memcpy", 1990, 10, correlation=5, bytes=1)])
    check_tables("views/counting.txt", {
        "kernels count once as self, and in all parents as total": view_table("operators", nested, times),
        "an operator that only calls itself again is one call": view_table("operators", repeated, times),
        "recursion with other children is several calls, which count once in totals; another thread is not inside":
            view_table("operators", recursion, times),
        "by shape, the inner call has a row of its own":
            view_table("operators", recursion, f"shapes {times}", by=("shape",), pattern="^f$"),
        "stacks are the Python frames around operators":
            view_table("operators", frames, "name stack calls", by=("stack",)),
        "stacks as recorded": view_table("operators", stacks, "name stack calls", by=("stack",)),
        "only copies with recorded bytes have a bandwidth": view_table("memcpy", copies),
        "the overview by category": view_table("overview", categories, by=("category",)),
        "a device that only copies in the chosen step has no busy time": view_table("device", only_copies, steps=(1,)),
    })  # fmt: skip


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
    two = [trace(rows, rank=0), trace(rows, rank=1)]

    def kernels(found: Trace, *steps: int) -> tuple[Any, ...]:
        return view_rows("overview", found, "calls time_ns ratio", steps=steps or None)[-1]

    assert kernels(two[0]) == kernels(two[0], 0, 1) == (3, 350, 160 / 200)
    assert kernels(two[0], 0) == (2, 150, 60 / 100)
    assert kernels(two[0], 1) == (1, 200, 100 / 100)
    assert view_rows("device", two[0], "busy_in_steps_ratio", steps=(0,)) == [(60 / 100,)]
    assert kernels(concat_traces(two), 0) == (4, 300, 120 / 200)
    how, request = reduction(VIEW["overview"]), ViewRequest(steps=(0,))
    merged = how.merge([how.reduce(one, request) for one in two], request)
    assert merged.equals(view_table("overview", concat_traces(two), steps=(0,)))


@pytest.mark.parametrize("native", [False, True])
def test_a_device_is_busy_with_work_of_an_earlier_step(native: bool) -> None:
    """The kernel of step 0 runs from 900 to 1300, and the kernel of step 1 from 1900 to 2500. Step 1 lasts from 1000 to
    2000."""
    steps = trace([
        host("s0", "step", 0, 1000), host("run", "operator", 10, 80), host("launch", "runtime", 20, 10, correlation=1),
        host("s1", "step", 1000, 1000), host("run", "operator", 1010, 80),
        host("launch", "runtime", 1020, 10, correlation=2),
        device("k0", "kernel", 900, 400, 1), device("k1", "kernel", 1900, 600, 2),
    ])  # fmt: skip
    columns = "kernels busy_ns span_ns utilisation_ratio busy_in_steps_ratio"
    assert view_rows("device", steps, columns, steps=(1,), native=native) == [(2, 400, 1000, 0.4, 0.4)]
    for chosen in ((0, 1), None):
        assert view_rows("device", steps, "busy_in_steps_ratio", steps=chosen, native=native) == [(0.25,)]


@pytest.mark.parametrize("name", VIEW)
def test_a_step_that_was_not_recorded_is_a_usage_error(small: Trace, name: str) -> None:
    with pytest.raises(UsageError, match=r"step 7 was not recorded.*recorded steps: 0, 1"):
        view_table(name, small, steps=(0, 7))


@pytest.mark.parametrize("name", ["operators", "kernels", "memcpy", "overview", "annotations"])
def test_a_pattern_filters_by_name_or_is_a_usage_error(small: Trace, name: str) -> None:
    assert len(view_table(name, small, pattern="no such name")) == 0
    whole = int(view_table(name, small)["calls"].sum())
    assert int(view_table(name, small, pattern=".")["calls"].sum()) == whole
    for bad in ("(", "[", "*", "(?<=a)b", "\udcff"):  # the last is a byte of a command line that is not UTF-8
        with pytest.raises(UsageError, match="not a regular expression"):
            view_table(name, small, pattern=bad)


def test_a_pattern_that_hangs_other_engines_does_not_hang() -> None:
    """RE2 is linear in the length of the name. An engine with backtracking would practically never finish."""
    rows = [host("a" * 5000 + "!", "operator", 0, 1)]
    assert len(view_table("operators", trace(rows), pattern="^(a+)+$")) == 0


def test_ranks_are_added_up_and_never_united() -> None:
    """Two ranks have the same clock readings. Their times are added, and each step has two rows."""
    both = concat_traces([trace(ROWS, rank=0), trace(ROWS, rank=1)])
    names = ("overview", "operators", "steps", "model", "device")
    check_tables("views/small_trace_twice.txt", {name: view_table(name, both) for name in names})


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
