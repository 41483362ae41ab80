"""The partition of steps: small traces worked out by hand, random traces against a count of single nanoseconds, and
real traces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.testing.conformance import check_view
from perfkit_core.trace.model.schema import DEVICE_WORK
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import partition
from perfkit_core.views.steps.partition import ON_DEVICE, ON_HOST
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_table

BY_STEP = ViewRequest(by=("step",))
ON_GPU = [
    host("step 0", "step", 0, 1000, step=0),
    host("load", "dataloader", 0, 100, phase="dataloader"),
    host("decode", "operator", 10, 50),
    host("load elsewhere", "dataloader", 500, 100, tid=2, phase="dataloader"),
    host("fwd", "forward", 120, 200, phase="forward"),
    host("launch", "runtime", 150, 10, correlation=1),
    host("all_reduce", "communication", 400, 50),
    host("launch", "runtime", 410, 10, correlation=2),
    host("host barrier", "communication", 900, 40),
    host("step 1", "step", 1000, 500, step=1),
    host("add", "operator", 1490, 10),
    device("k", "kernel", 200, 150, correlation=1),
    device("sum", "kernel", 300, 200, correlation=2, stream=8),
    device("copy", "memcpy", 480, 60, copy_kind="HtoD"),
    device("late", "kernel", 990, 30),
    device("ncclDevKernel_Broadcast", "kernel", 1010, 40),
]


def wide(some: Trace, **request: Any) -> list[dict[str, Any]]:
    """Return the rows of the table by step, without ``_ns`` in the column names."""
    table = table_of(partition.VIEW, some, ViewRequest(by=("step",), **request))
    return [{key.removesuffix("_ns"): value for key, value in row.items()} for row in table.to_dict("records")]


def parts(row: dict[str, Any], names: tuple[str, ...] = ON_DEVICE) -> tuple[int, ...]:
    return tuple(row[name] for name in names)


ON_CPU = [
    host("step 0", "step", 0, 1000, step=0),
    host("load", "dataloader", 0, 100, phase="dataloader"),
    host("decode", "operator", 10, 50),
    host("train.py", "python", 150, 300),
    host("mm", "operator", 200, 100),
    host("mm inner", "operator", 210, 50),
    host("hook", "operator", 500, 100),
    host("c10d all_reduce", "communication", 520, 60),
    host("gloo all_reduce", "communication", 550, 150, tid=2),
    host("decode elsewhere", "operator", 80, 40, tid=3),
]


def test_the_parts_of_steps() -> None:
    """On a device, the first step has these parts:

    - Compute runs at 200–350 and 990–1000.
    - Communication is the kernel that all_reduce launched (350–500) and the host barrier (900–940), which launched
      nothing. The host call of all_reduce only launches communication.
    - The exposed copy runs at 500–540, and the input wait lasts from 0 to 100.
    - Host work is forward at 120–200 (later, kernels hide it) and the other thread's data loading at 540–600.

    In the second step, a kernel without a launch counts where it runs, and a kernel with the name of a collective is
    communication. Without a device, the step has these parts:

    - Compute is mm (200–300), hook (500–520 and 580–600) and the operator on another thread (80–120), which takes
      precedence over input wait.
    - Communication runs at 520–580 and 600–700, and the input wait lasts from 0 to 80.
    - Framework time is the Python frame around mm (150–200 and 300–450).
    """
    on_gpu = trace(ON_GPU)
    both = concat_traces([trace(ON_GPU, rank=0), trace([*ON_GPU[:2], *ON_GPU[4:6], ON_GPU[11]], rank=1)])
    step = host("step 0", "step", 0, 100, step=0)
    names = [step, host("c_allreduce_sum", "operator", 0, 30), host("broadcast_tensors", "operator", 40, 30)]
    overlap = trace([step, host("step 1", "step", 50, 100, step=1), host("mm", "operator", 60, 20)])
    check_tables("views/partition.txt", {
        "with a device": view_table("partition", on_gpu),
        "with a device, by step": view_table("partition", on_gpu, by=("step",)),
        "step 1": view_table("partition", on_gpu, by=("step",), steps=(1,)),
        "two ranks, by rank": view_table("partition", both, by=("rank",)),
        "two ranks, by step": view_table("partition", both, by=("step",)),
        "without a device": view_table("partition", trace(ON_CPU)),
        "an operator is communication only by its canonical name":
            view_table("partition", trace(names, names={"c_allreduce_sum": "all_reduce"}.get)),
        "each of two overlapping steps counts all its time": view_table("partition", overlap, by=("step",)),
    })  # fmt: skip


def test_a_step_that_was_not_recorded_is_refused() -> None:
    with pytest.raises(UsageError, match="step 9"):
        wide(trace(ON_GPU), steps=(9,))


def test_without_steps_the_table_is_empty() -> None:
    found = trace([host("mm", "operator", 0, 10)])
    assert table_of(partition.VIEW, found, ViewRequest()).empty
    assert "step()" in str(partition.VIEW.explain_empty(found))
    check_view(partition.VIEW, trace(ON_GPU))
    check_view(partition.VIEW, trace(ON_CPU))


TIMES = st.tuples(st.integers(0, 40), st.integers(0, 25))
HOST_KINDS = ("dataloader", "operator", "annotation", "python", "runtime", "overhead", "forward", "memory")
DEVICE_KINDS = ("kernel", "memcpy", "memset", "nccl")


@st.composite
def rows_of_a_run(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return rows of steps, of host events on two threads, and of device work without a launch."""
    starts = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=4)))
    rows = [host(f"step {i}", "step", start, 8, step=i) for i, start in enumerate(starts)]
    for kind in draw(st.lists(st.sampled_from(HOST_KINDS), max_size=8)):
        start, dur = draw(TIMES)
        phase = kind if kind in ("dataloader", "forward") else None
        rows.append(host(kind, kind, start, dur, tid=draw(st.integers(1, 2)), phase=phase))
    for kind in draw(st.lists(st.sampled_from(DEVICE_KINDS), max_size=6)):
        rows.append(device(kind, "kernel" if kind == "nccl" else kind, *draw(TIMES), stream=draw(st.integers(7, 8))))
    return rows


def at(rows: list[dict[str, Any]], time: int, *kinds: str, tid: int | None = None) -> bool:
    return any(
        row["start_ns"] <= time < row["start_ns"] + row["dur_ns"] and tid in (None, row.get("tid"))
        for row in rows
        if row["name"] in kinds or (row["kind"] in kinds and row["name"] != "nccl")
    )


def category(rows: list[dict[str, Any]], time: int) -> str:
    """Return the category of one nanosecond of a trace with device work, according to the definition."""
    if at(rows, time, "kernel"):
        return "device_compute"
    if at(rows, time, "nccl"):
        return "exposed_communication"
    if at(rows, time, "memcpy", "memset"):
        return "exposed_copy"
    if at(rows, time, "dataloader", tid=1):
        return "input_wait"
    hosts = [row for row in rows if row["device"] == "cpu" and row["kind"] not in ("step", "memory")]
    return "launch_and_host" if at(hosts, time, *HOST_KINDS) else "idle"


@given(rows_of_a_run())
def test_the_parts_of_random_steps_cover_them(rows: list[dict[str, Any]]) -> None:
    found = trace(rows)
    on_device = bool(found.rows("kind", *DEVICE_WORK).any())  # without the work of a profiler's warm-up
    steps = {row["step"]: row for row in rows if row["kind"] == "step"}
    for row in wide(found):
        names = ON_DEVICE if on_device else ON_HOST
        assert sum(parts(row, names)) == row["dur"]
        if on_device:
            start = steps[row["step"]]["start_ns"]
            expected = [category(rows, time) for time in range(start, start + 8)]
            assert {name: row[name] for name in ON_DEVICE} == {name: expected.count(name) for name in ON_DEVICE}
