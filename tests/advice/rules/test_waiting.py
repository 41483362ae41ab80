"""Rule 9: an operator that waits for the device. Times in comments are in µs."""

from __future__ import annotations

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.waiting_operator import find as waiting_operator
from tests.support.advised import BOTH, Rows, call, found, kernel, op, steps, why_not

SLICE = {"torch": "aten::slice_backward", "paddle": "Global_SliceGradNode"}


def slicing(framework: str, longest: int = 1500, blocking: bool = True, busy: int = 1500) -> Rows:
    """Return two calls of an operator: one takes 10 µs, the other takes ``longest`` µs while a kernel of ``busy`` µs
    runs."""
    return [
        op(SLICE[framework], 0, 10),
        call("launch", 2, 4, 1),
        kernel("gemm", 10, busy, 1),
        op(SLICE[framework], 20, longest),
        *([call("cudaStreamSynchronize", 21, longest - 2, kind="sync")] if blocking else [call("launch", 21, 4, 2)]),
    ]


@BOTH
def test_an_operator_that_waits(framework: str) -> None:
    recording = steps(slicing(framework), dur=1600, framework=framework)
    (candidate,) = found(waiting_operator, recording)
    assert candidate.method == "none"
    assert candidate.evidence["operator"] == SLICE[framework]
    assert candidate.evidence["call_ns"] == 1_500_000
    assert candidate.evidence["longest_ns"] == 1_500_000
    assert candidate.evidence["shortest_ns"] == 10_000
    assert candidate.evidence["waits_for"] == "gemm"
    # the call runs from 20 to 1520, and the kernel ends at 1510
    assert candidate.evidence["device_overlap_ratio"] == round(1490 / 1500, 3)
    assert "cudaStreamSynchronize" in str(candidate.what)
    prediction = predict(RuleInput(recording), candidate)
    assert (prediction.saving_ns, prediction.p50_ns, prediction.ceiling_ns) == (None, None, None)


@BOTH
def test_an_operator_that_computes_beside_a_busy_device(framework: str) -> None:
    recording = steps(slicing(framework, blocking=False), dur=1600, framework=framework)
    assert found(waiting_operator, recording) == []


@BOTH
def test_an_idle_device_is_not_waited_for(framework: str) -> None:
    """A kernel that ends at 1210 covers 1190 of 1500 µs, which is 79 %. A kernel that ends at 1220 covers 80 %."""
    assert found(waiting_operator, steps(slicing(framework, busy=1200), dur=1600, framework=framework)) == []
    assert len(found(waiting_operator, steps(slicing(framework, busy=1210), dur=1600, framework=framework))) == 1


def test_a_hundred_times_as_long_is_not_more() -> None:
    assert found(waiting_operator, steps(slicing("torch", longest=1000), dur=1600)) == []
    assert len(found(waiting_operator, steps(slicing("torch", longest=1001), dur=1600))) == 1


def test_calls_of_equal_length_do_not_wait() -> None:
    rows = [row for row in slicing("torch") if row["start_ns"] >= 10_000]
    assert found(waiting_operator, steps(rows, dur=1600)) == []


@BOTH
def test_waiting_for_work_that_the_call_launched(framework: str) -> None:
    """The long call launches the kernel itself, so the operator itself is slow."""
    rows = [row for row in slicing(framework) if row["kind"] != "kernel"]
    rows += [call("launch", 21, 4, 3), kernel("own", 24, 1490, 3)]
    assert found(waiting_operator, steps(rows, dur=1600, framework=framework)) == []


def test_without_a_device() -> None:
    assert "no device work" in why_not(waiting_operator, steps([op("aten::add", 0, 50)]))
