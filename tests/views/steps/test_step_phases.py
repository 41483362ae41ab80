"""Phases of the step, against numbers worked out by hand: unions of device time, unlaunched work, Paddle's sums."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.views.devices import device as device_view
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import overview, step_phases
from tests.support.events import device, host, trace

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


def phases(found: Trace, columns: str, **request: Any) -> dict[str, tuple[Any, ...]]:
    table = step_phases.table(found, ViewRequest(**request))
    return {
        row["phase"]: tuple(None if pd.isna(row[name]) else row[name] for name in columns.split())
        for _, row in table.iterrows()
    }


def test_device_time_is_a_union() -> None:
    """Work that overlaps on several streams counts once. Three segments of forward have unions of 150, 50 and 0 ns, and
    all three together have a union of 180 ns. The last step is empty and does not count."""
    assert phases(trace(ROWS), "calls total_device_ns avg_device_ns min_device_ns max_device_ns") == {
        "step": (2, 240 + 30, 135, 30, 240),
        "forward": (3, 180, 60, 0, 150),
        "backward": (1, 100, 100, 100, 100),
        "other": (None, 30, None, None, None),
        "unlaunched": (None, 15, None, None, None),
    }
    table = step_phases.table(trace(ROWS), ViewRequest()).set_index("phase")
    assert table.loc["forward", "device_ratio"] == pytest.approx(180 / 270)
    assert pd.isna(table.loc["unlaunched", ["total_cpu_ns", "cpu_ratio", "device_ratio"]]).all()


def test_host_time_of_parallel_phases_leaves_no_negative_rest() -> None:
    found = phases(trace(ROWS), "calls total_cpu_ns min_cpu_ns max_cpu_ns")
    assert found["forward"] == (3, 300 + 100 + 450, 100, 450)  # the last segment is cut at the end of its step
    assert found["other"] == (None, 1500 - 300 - 500, None, None)


def test_a_chosen_step_has_no_row_of_unlaunched_work() -> None:
    assert set(phases(trace(ROWS), "calls", steps=(0,))) == {"step", "forward", "backward", "other"}


def test_native_sums_calls_and_kernels_and_counts_the_empty_step() -> None:
    """The time of ``other`` is the step time less the sum of the phases, on the host and on the device."""
    assert phases(trace(ROWS), "calls total_cpu_ns min_cpu_ns total_device_ns min_device_ns", native=True) == {
        "step": (3, 1520, 20, 100 + 100 + 40 + 100 + 30, 0),
        "forward": (3, 900, 100, 240, 0),
        "backward": (1, 100, 100, 100, 100),
        "other": (None, 1520 - 1000, None, 30, None),
    }


def test_native_other_time_is_negative_if_threads_overlap() -> None:
    rows = [
        ROWS[0],
        host("fwd", "forward", 0, 900, phase="forward"),
        host("fwd", "forward", 0, 900, tid=2, phase="forward"),
        host("mm", "operator", 950, 10),
    ]
    assert phases(trace(rows), "total_cpu_ns", native=True)["other"] == (-800,)
    assert phases(trace(rows), "total_cpu_ns")["other"] == (100,)


def test_ranks_are_added() -> None:
    both = concat_traces([trace(ROWS, rank=0), trace(ROWS, rank=1)])
    once, twice = phases(trace(ROWS), "total_device_ns"), phases(both, "total_device_ns")
    assert twice == {phase: (2 * value,) for phase, (value,) in once.items()}


def test_the_native_overview_counts_the_empty_step() -> None:
    """Phases have the sums of the view ``model``. Work launched outside host events does not count, and the empty step
    counts."""
    table = table_of(overview.VIEW, trace(ROWS), ViewRequest(native=True))
    found = {(row["category"], row["place"]): (row["calls"], row["time_ns"]) for _, row in table.iterrows()}
    assert found == {
        ("ProfileStep", "host"): (3, 1520),
        ("Forward", "host"): (3, 900),
        ("Backward", "host"): (1, 100),
        ("Operator", "host"): (1, 10),
        ("Runtime", "host"): (5, 42),
        ("Kernel", "device"): (5, 240 + 30),
        ("Memset", "device"): (1, 10),
    }
    assert table.set_index("category").loc["Operator", "ratio"] == pytest.approx(10 / 1520)


def test_native_overview_of_communication() -> None:
    rows = [
        ROWS[0],
        host("allreduce", "communication", 10, 20, category="Communication"),
        host("launch", "runtime", 12, 5, correlation=1, category="Runtime"),
        host("broadcast_tensors", "operator", 20, 40, category="Operator"),
        device("ring", "kernel", 100, 50, correlation=1, category="Kernel"),
    ]
    table = table_of(overview.VIEW, trace(rows), ViewRequest(native=True))
    found = {(row["category"], row["place"]): (row["calls"], row["time_ns"]) for _, row in table.iterrows()}
    assert found[("Communication", "host")] == (2, 50)
    assert found[("Communication", "device")] == (1, 50)
    assert found[("Operator", "host")] == (1, 40)


def test_native_utilisation_counts_only_launched_kernels() -> None:
    """perfkit's table counts all kernels and divides by the time of two steps. Paddle's table leaves out the kernels e
    and lost, and also counts the empty step."""
    (ours,) = device_view.table(trace(ROWS), ViewRequest()).to_dict("records")
    (theirs,) = device_view.table(trace(ROWS), ViewRequest(native=True)).to_dict("records")
    assert (ours["kernels"], ours["busy_ns"], ours["span_ns"]) == (7, 240 + 30 + 30 + 10, 1500)
    assert (theirs["kernels"], theirs["busy_ns"], theirs["span_ns"]) == (5, 240 + 30, 1520)
    assert theirs["utilisation_ratio"] == pytest.approx(270 / 1520)


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
    assert phases(trace(rows), "calls total_cpu_ns") == {
        "dataloader": (2, 600),
        "forward": (2, 2 * 45),
        "backward": (2, 2 * 80),
        "optimizer": (2, 100),
    }
    both = concat_traces([trace(rows, rank=0), trace(rows, rank=1)])
    assert phases(both, "calls total_cpu_ns")["backward"] == (4, 4 * 80)


def test_clearing_gradients_is_part_of_an_update() -> None:
    """The first step has two updates. The second step clears after its update, the third does not update."""
    rows: list[dict[str, Any]] = []
    for step, spans in enumerate(["zero_grad:10 step:100 zero_grad:20 step:200", "step:50 zero_grad:5", "zero_grad:1"]):
        rows.append(host(f"step {step}", "step", 1000 * step, 1000, step=step))
        for at, span in enumerate(spans.split()):
            name, dur = span.split(":")
            rows.append(host(f"Optimizer.{name}", "optimizer", 1000 * step + 200 * at + 1, int(dur), phase="optimizer"))
    for native in (False, True):
        table = step_phases.table(trace(rows), ViewRequest(native=native)).set_index("phase").loc["optimizer"]
        assert table[["calls", "total_cpu_ns", "min_cpu_ns", "max_cpu_ns"]].tolist() == [3, 386, 56, 220]
        assert table["avg_cpu_ns"] == round(386 / 3)
    (alone,) = step_phases.table(trace(rows), ViewRequest(steps=(2,))).query("phase == 'optimizer'")["calls"]
    assert alone == 1
