"""Rule 8: driver calls that allocate memory after the first step, and the saving without these calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.device_malloc import find as device_malloc
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, found, kernel, op, predicted, steps, why_not
from tests.support.events import device, host, trace


def step(*more: dict[str, Any]) -> Rows:
    """Return the events of a step of 1000 µs: a launch of 10 µs, its kernel of 20 µs, and the events ``more``."""
    return [call("cudaLaunchKernel", 10, 10, 1), kernel("gemm", 30, 20, 1), *more]


@pytest.mark.parametrize("name", ["cudaMalloc", "hipMalloc", "cudaHostAlloc", "cuMemMap"])
def test_allocations_in_every_step(name: str) -> None:
    recording = steps(step(call(name, 500, 40)), 1000)
    (one,) = found(device_malloc, recording)
    assert one.evidence["calls"] == 2  # the call in the first step does not count
    assert one.ceiling_ns == 40_000
    assert predicted(recording, one) == (960_000, 960_000, 960_000)  # the call in the first of three steps stays
    assert one.rows.tolist() == [row for row in range(len(recording)) if recording.ints("step")[row] > 0 and
                                 recording.rows("name", name)[row]]  # fmt: skip


def test_removing_cudafree_removes_its_wait() -> None:
    rows = [call("cudaLaunchKernel", 10, 10, 1), kernel("gemm", 30, 400, 1), call("cudaFree", 100, 335)]
    recording = steps(rows, 1000)
    (one,) = found(device_malloc, recording)
    assert predicted(recording, one)[1] == 1_000_000 - 335_000


@pytest.mark.parametrize("name", ["cudaMallocAsync", "cudaFreeAsync", "cudaMallocFromPoolAsync", "cudaMemcpy"])
def test_calls_that_allocate_nothing_or_from_a_pool(name: str) -> None:
    assert found(device_malloc, steps(step(call(name, 500, 40)), 1000)) == []


def test_a_small_share_does_not_count() -> None:
    assert found(device_malloc, steps(step(call("cudaMalloc", 500, 10)), 1000)) == []  # 1 % of the step
    assert len(found(device_malloc, steps(step(call("cudaMalloc", 500, 11)), 1000))) == 1


def test_the_first_step_may_allocate() -> None:
    rows = [host("step 0", "step", 0, 1000, step=0), host("cudaMalloc", "runtime", 100, 400)]
    rows += [host("step 1", "step", 1000, 1000, step=1), host("add", "operator", 1100, 50)]
    rows += [device("gemm", "kernel", 1200, 100)]
    assert found(device_malloc, trace(rows)) == []


def test_device_work_and_two_steps_are_needed() -> None:
    assert "device" in why_not(device_malloc, steps([op("add", 0, 10)]))
    assert "one step" in why_not(device_malloc, steps(step(), 1000, count=1))


def test_without_steps_the_second_half_of_device_work_counts() -> None:
    """The device works from 20 to 590, so calls count from 305 on. Earlier calls belong to the warm-up, even if they
    are late in the recording."""
    work = [device("gemm", "kernel", start, 10) for start in (20, 580)]
    rows = [host("add", "operator", 0, 10), host("add", "operator", 990, 10), *work]
    early, late = host("cudaMalloc", "runtime", 100, 300), host("cudaMalloc", "runtime", 600, 300)
    assert found(device_malloc, trace([*rows, early])) == []
    recording = trace([*rows, early, late])
    (one,) = found(device_malloc, recording)
    assert one.evidence["calls"] == 1
    assert predicted(recording, one)[1] == 700


def test_a_late_warm_up_does_not_count(traces: Path) -> None:
    """A cudaFree of six seconds within the first convolution does not count, although it is in the second half of the
    recording."""
    recording = load(traces / "torch" / "alexnet-cuda-sync.json.gz")
    frame = recording.to_pandas()
    assert frame.loc[frame["name"] == "cudaFree", "dur_ns"].max() > 5_900_000_000
    (one,) = found(device_malloc, recording)
    assert one.evidence["calls_ns"] < 3_000_000_000


def test_a_training_whose_allocator_keeps_nothing(traces: Path) -> None:
    recording = load(traces / "torch" / "mi300x-ddp-resnet18-train.json.gz")
    (one,) = found(device_malloc, recording)
    frame = recording.to_pandas()
    taken = frame.loc[frame["name"].isin(["hipMalloc", "hipFree", "hipHostMalloc"]), "dur_ns"].sum()
    assert taken > 0.98 * RuleInput(recording).step_ns  # including the first step
    assert 0 < one.evidence["calls_ns"] < taken
    kept = predicted(recording, one)[1]
    assert kept is not None
    assert kept < RuleInput(recording).step_ns - 0.9 * one.evidence["calls_ns"]  # waits for the device stay


def without_first_step(recording: Trace) -> int:
    """Return the number of calls that allocate or free memory after the first step, counted in the event table."""
    frame = recording.to_pandas()
    first = frame["step"].min()
    wanted = frame["name"].isin(["cudaMalloc", "cudaFree", "hipMalloc", "hipFree"]) & (frame["step"] > first)
    return int(wanted.sum())


def test_recorded_steps_are_counted_alike(traces: Path) -> None:
    for name in ("v100-ns-resolution", "mi300x-resnet-act-checkpoint-steps"):
        facts = RuleInput(load(traces / "torch" / f"{name}.json.gz"))
        least = found(device_malloc, facts.trace, device_malloc_share=0)
        assert sum(one.evidence["calls"] for one in least) == without_first_step(facts.trace)
