"""What-if questions about chosen changes, against steps whose new times follow by hand."""

from __future__ import annotations

import pytest

from perfkit_core.advice.what_if import what_if
from perfkit_core.errors import UsageError
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import US, call, copy, kernel, op, steps
from tests.support.events import device
from tests.support.events import trace as made

# A step of 100 µs. The host launches a copy to the device at 0 and waits for it until 20; then it launches a kernel,
# which runs from 30 to 70, and waits for the device until 72. The rest is an operator on the host.
STEP = [
    op("aten::to", 0, 22),
    call("cudaMemcpy", 1, 20, 1),
    copy("HtoD", 4096, 5, 15, 1),
    op("aten::mm", 22, 8),
    call("cudaLaunchKernel", 24, 4, 2),
    kernel("gemm", 30, 40, 2),
    call("cudaDeviceSynchronize", 31, 41, kind="sync"),
    op("aten::sort", 72, 20),
]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return steps(STEP, 100, 4)


def step_us(trace: Trace, **changes: object) -> float:
    return (what_if(trace, **changes).prediction.p50_ns or 0) / US  # type: ignore[arg-type]


def test_the_answer_starts_from_the_recorded_step(trace: Trace) -> None:
    answer = what_if(trace, remove="aten::sort")
    assert answer.prediction.base_ns == 100 * US
    assert answer.identity.error == 0
    assert answer.prediction.method == "replay"


def test_a_removed_operator_takes_no_time(trace: Trace) -> None:
    """The host goes on 20 µs earlier: nothing waits for a sort on the host."""
    answer = what_if(trace, remove="aten::sort")
    assert answer.prediction.p50_ns == 80 * US
    assert answer.changes == ("4 × aten::sort: are removed, including all events inside them",)


def test_a_faster_kernel_shortens_the_wait(trace: Trace) -> None:
    """The kernel ends at 50 instead of 70, and so does the wait."""
    assert step_us(trace, speed_up={"^gemm$": 2}) == 80


def test_a_faster_operator_is_faster_on_host_and_device(trace: Trace) -> None:
    """The launch is 1 µs earlier, because half of the 2 µs before it is gone. The kernel takes 20 µs less."""
    assert step_us(trace, speed_up={"aten::mm": 2}) == 100 - 1 - 20


def test_changes_add_up_where_nothing_waits(trace: Trace) -> None:
    assert step_us(trace, remove=["aten::sort"], speed_up={"^gemm$": 2}) == 60


def test_without_syncs_the_host_runs_ahead(trace: Trace) -> None:
    """Now the blocking copy of the next step waits for the kernel. So a step takes at least 15 µs for the copy, 10 µs
    from its end to the kernel, and 40 µs for the kernel. Until now, it took 100 µs."""
    assert 65 <= step_us(trace, no_syncs=True) <= 70


def test_overlapped_copies_no_longer_block(trace: Trace) -> None:
    """The call waited 15 µs for its copy. But the kernel follows the copy in the stream, and the host waits for it."""
    answer = step_us(trace, overlap_copies=True)
    assert answer < 100
    assert step_us(trace, overlap_copies=True, no_syncs=True) < answer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "no change is given"),
        ({"remove": "no such name"}, "no event has a name that matches 'no such name'"),
        ({"remove": "^step"}, "no event has a name that matches"),
        ({"remove": "("}, r"\("),
        ({"overlap_copies": True, "host_only": True}, "no copy between host and device was recorded"),
        ({"no_syncs": True, "host_only": True}, "no synchronisation with a device was recorded"),
        ({"speed_up": {"gemm": 0}}, "the factor 0 of 'gemm' is not a positive number"),
        ({"speed_up": {"gemm": float("nan")}}, "the factor nan"),
    ],
)
def test_invalid_changes_are_refused(trace: Trace, changes: dict[str, object], message: str) -> None:
    if changes.pop("host_only", False):
        trace = steps([op("aten::sort", 72, 20)])
    with pytest.raises(UsageError, match=message):
        what_if(trace, **changes)  # type: ignore[arg-type]


def test_a_recording_without_host_events_cannot_be_replayed() -> None:
    with pytest.raises(UsageError):
        what_if(made([device("gemm", "kernel", 0, 10)]), remove="gemm")
