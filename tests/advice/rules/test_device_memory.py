"""Rule 8: driver calls that allocate memory after the first step, and the saving without these calls. The outcomes are
in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.device_malloc import find as device_malloc
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, found, kernel, op, predicted, steps
from tests.support.events import device, host, trace
from tests.support.rule_cases import check_rule


def step(*more: dict[str, Any]) -> Rows:
    """Return the events of a step of 1000 µs: a launch of 10 µs, its kernel of 20 µs, and the events ``more``."""
    return [call("cudaLaunchKernel", 10, 10, 1), kernel("gemm", 30, 20, 1), *more]


def test_device_malloc() -> None:
    """The call in the first of three steps stays. Without steps, calls count in the second half of the device's work,
    from 305 on: earlier calls belong to the warm-up."""

    def case(name: str, dur: int = 40) -> Trace:
        return steps(step(call(name, 500, dur)), 1000)

    frees = [call("cudaLaunchKernel", 10, 10, 1), kernel("gemm", 30, 400, 1), call("cudaFree", 100, 335)]
    warm_up = [host("step 0", "step", 0, 1000, step=0), host("cudaMalloc", "runtime", 100, 400)]
    warm_up += [host("step 1", "step", 1000, 1000, step=1), host("add", "operator", 1100, 50)]
    work = [device("gemm", "kernel", start, 10) for start in (20, 580)]
    rows = [host("add", "operator", 0, 10), host("add", "operator", 990, 10), *work]
    early, late = host("cudaMalloc", "runtime", 100, 300), host("cudaMalloc", "runtime", 600, 300)
    allocating = ("cudaMalloc", "hipMalloc", "cudaHostAlloc", "cuMemMap")
    pooled = ("cudaMallocAsync", "cudaFreeAsync", "cudaMallocFromPoolAsync", "cudaMemcpy")
    check_rule("device-malloc", {
        **{f"{name} in every step": case(name) for name in (*allocating, *pooled)},
        "a cudaFree that waits for a kernel": steps(frees, 1000),
        "10 of 1000 µs": case("cudaMalloc", 10),
        "11 of 1000 µs": case("cudaMalloc", 11),
        "only in the first step": trace([*warm_up, device("gemm", "kernel", 1200, 100)]),
        "without steps, in the first half": trace([*rows, early]),
        "without steps, in both halves": trace([*rows, early, late]),
        "without a device": steps([op("add", 0, 10)]),
        "one step": steps(step(), 1000, count=1),
    })  # fmt: skip


def test_a_late_warm_up_does_not_count(traces: Path) -> None:
    """A cudaFree of six seconds within the first convolution does not count, nor do later allocations, which do not
    recur."""
    recording = load(traces / "torch" / "alexnet-cuda-sync.json.gz")
    frame = recording.to_pandas()
    assert frame.loc[frame["name"] == "cudaFree", "dur_ns"].max() > 5_900_000_000
    assert found(device_malloc, recording) == []


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
