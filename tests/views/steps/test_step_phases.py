"""Phases of the step, against numbers worked out by hand: unions of device time, unlaunched work, Paddle's sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfkit_core.trace.model.trace import concat_traces
from perfkit_core.views.steps.step_phases import segments
from tests.support.events import device, host, trace
from tests.support.tables import check_tables, view_rows, view_table

ROWS = [
    host("Step#0", "step", 0, 1000, step=0, category="ProfileStep"),
    host("fwd", "forward", 100, 300, phase="forward", category="Forward"),
    host("launch", "runtime", 110, 10, correlation=1, category="Runtime"),
    host("launch", "runtime", 130, 10, correlation=2, category="Runtime"),
    host("fwd", "forward", 500, 100, phase="forward", category="Forward"),
    host("launch", "runtime", 510, 10, correlation=3, category="Runtime"),
    host("fwd elsewhere", "forward", 550, 500, tid=2, phase="forward", category="Forward"),
    host("bwd", "backward", 700, 100, phase="backward", category="Backward"),
    host("launch", "runtime", 710, 10, correlation=4, category="Runtime"),
    host("lone launch", "runtime", 2000, 10, correlation=5, tid=3, category="Runtime"),
    host("Step#1", "step", 1000, 500, step=1, category="ProfileStep"),
    host("mm", "operator", 1100, 10, category="Operator"),
    host("launch", "runtime", 1102, 2, correlation=6, category="Runtime"),
    host("Step#2", "step", 1500, 20, step=2, category="ProfileStep"),
    device("a", "kernel", 150, 100, correlation=1, category="Kernel"),
    device("b", "kernel", 200, 100, correlation=2, stream=8, category="Kernel"),
    device("c", "kernel", 280, 40, correlation=3, category="Kernel"),
    device("fill", "memset", 320, 10, correlation=3, category="Memset"),
    device("d", "kernel", 290, 100, correlation=4, stream=9, category="Kernel"),
    device("e", "kernel", 2100, 30, correlation=5, category="Kernel"),
    device("f", "kernel", 1150, 30, correlation=6, category="Kernel"),
    device("lost", "kernel", 1300, 10, category="Kernel"),
    device("lost too", "memcpy", 1305, 10, category="Memcpy"),
]


def test_phases_and_overview() -> None:
    """Work that overlaps on several streams counts once. Three segments of forward have unions of 150, 50 and 0 ns, and
    all three together have a union of 180 ns. The last step is empty and does not count. The last forward segment is
    cut at the end of its step.

    Paddle's numbers are sums of calls and of kernels, and count the empty step. The time of ``other`` is the step time
    less the sum of the phases, which is negative if threads overlap. Work launched outside host events does not count.
    perfkit's table of devices counts all kernels and divides by the time of two steps. Paddle's leaves out the kernels
    e and lost, and also counts the empty step."""
    overlap = trace([
        ROWS[0],
        host("fwd", "forward", 0, 900, phase="forward"),
        host("fwd", "forward", 0, 900, tid=2, phase="forward"),
        host("mm", "operator", 950, 10),
    ])  # fmt: skip
    communication = trace([
        ROWS[0],
        host("allreduce", "communication", 10, 20, category="Communication"),
        host("launch", "runtime", 12, 5, correlation=1, category="Runtime"),
        host("broadcast_tensors", "operator", 20, 40, category="Operator"),
        device("ring", "kernel", 100, 50, correlation=1, category="Kernel"),
    ])  # fmt: skip
    found = trace(ROWS)
    both = concat_traces([trace(ROWS, rank=0), trace(ROWS, rank=1)])
    check_tables("views/phases.txt", {
        "model": view_table("model", found),
        "model, native": view_table("model", found, native=True),
        "model, step 0 has no row of unlaunched work": view_table("model", found, steps=(0,)),
        "model, two ranks": view_table("model", both),
        "model, overlapping threads": view_table("model", overlap),
        "model, overlapping threads, native": view_table("model", overlap, native=True),
        "overview, native": view_table("overview", found, native=True),
        "overview of communication, native": view_table("overview", communication, native=True),
        "device": view_table("device", found),
        "device, native": view_table("device", found, native=True),
    })  # fmt: skip


def test_a_backward_segment_ends_where_another_phase_begins() -> None:
    """A forward segment lasts 45 ns. A backward segment includes the gap of 10 ns between its nodes. The prefetching
    loader does not split it."""
    rows = []
    for at, number in ((0, 1), (1000, 3)):
        rows += [
            host("mm", "operator", at + 10, 20, sequence=number),
            host("relu", "operator", at + 35, 20, sequence=number + 1),
            host("ReluBackward", "operator", at + 100, 40, tid=2, sequence=number + 1, phase="backward"),
            host("load", "dataloader", at + 142, 300, tid=3, phase="dataloader"),
            host("MmBackward", "operator", at + 150, 30, tid=2, sequence=number, phase="backward"),
            host("Optimizer.step", "optimizer", at + 500, 50, phase="optimizer"),
        ]
    assert view_rows("model", trace(rows), "phase calls total_cpu_ns") == [
        ("dataloader", 2, 600), ("forward", 2, 2 * 45), ("backward", 2, 2 * 80), ("optimizer", 2, 100),
    ]  # fmt: skip
    both = concat_traces([trace(rows, rank=0), trace(rows, rank=1)])
    assert ("backward", 4, 4 * 80) in view_rows("model", both, "phase calls total_cpu_ns")


@pytest.mark.parametrize(("blank", "forward"), [(20, [45]), (30, [10, 15])])
def test_a_gap_longer_than_all_operators_is_no_forward(blank: int, forward: list[int]) -> None:
    """The operators of this forward pass take 25 ns."""
    operators = [host("mm", "operator", 0, 10, sequence=1), host("mm", "operator", 10 + blank, 15, sequence=2)]
    nodes = [host("MmBackward", "operator", at, 5, sequence=n, phase="backward") for n, at in ((2, 100), (1, 160))]
    phases = segments(recorded := trace([*operators, *nodes]), np.ones(4, np.bool_))
    assert recorded.rows("phase", "forward").sum() == 2
    assert sorted(phases.dur_ns.tolist()) == sorted([*forward, 65])  # a backward pass also waits for other threads


def test_clearing_gradients_is_part_of_an_update() -> None:
    """The first step has two updates. The second step clears after its update, the third does not update."""
    rows: list[dict[str, Any]] = []
    for step, spans in enumerate(["zero_grad:10 step:100 zero_grad:20 step:200", "step:50 zero_grad:5", "zero_grad:1"]):
        rows.append(host(f"step {step}", "step", 1000 * step, 1000, step=step))
        for at, span in enumerate(spans.split()):
            name, dur = span.split(":")
            rows.append(host(f"Optimizer.{name}", "optimizer", 1000 * step + 200 * at + 1, int(dur), phase="optimizer"))
    columns = "phase calls total_cpu_ns min_cpu_ns max_cpu_ns avg_cpu_ns"
    for native in (False, True):
        assert ("optimizer", 3, 386, 56, 220, round(386 / 3)) in view_rows("model", trace(rows), columns, native=native)
    assert ("optimizer", 1) in view_rows("model", trace(rows), "phase calls", steps=(2,))
