"""Rule 36: steps that take longer than usual, the events that grew, and a device whose clock drops. Times are in µs.
The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.advice.remedies import remedied
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.outlier_steps import find as outliers
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.rule_cases import check_rule

US = 1000
USUAL = (98, 99, 100, 101, 102, 98, 99, 100, 101, 102)
"""The median is 100. With any longer step, the median absolute deviation is 1, so the standard deviation is 1.4826."""


def rows_of(recording: Trace) -> list[dict[str, object]]:
    """Return the events of a recording as the rows from which it was made."""
    kept = ("name", "kind", "start_ns", "dur_ns", "step", "pid", "tid", "device")
    return [{name: row[name] for name in kept if row[name] is not None} for row in recording.events.to_pylist()]


def training(steps: Sequence[int], longer: str = "slow") -> Trace:
    """Return steps with an operator of 50 µs, an operator ``longer``, and 10 µs in which nothing was recorded."""
    rows, at = [], 0
    for step, dur in enumerate(steps):
        rows += [
            host(f"step {step}", "step", at, dur, step=step),
            host("run", "operator", at, 50),
            host(longer, "operator", at + 50, dur - 60),
        ]
        at += dur
    return trace([row | {"start_ns": row["start_ns"] * US, "dur_ns": row["dur_ns"] * US} for row in rows])


def outside_of(recording: Trace) -> Trace:
    """Return the recording without its operator ``slow``, so that nothing is recorded in this time."""
    return trace([row for row in rows_of(recording) if row["name"] != "slow"])


def waiting() -> Trace:
    """Return steps in which the host waits for a kernel, which takes 50 µs longer in the last step."""
    rows = []
    for step, dur in enumerate((*USUAL, 150)):
        at = sum(USUAL[:step])
        rows += [
            host(f"step {step}", "step", at, dur, step=step),
            host("launch", "runtime", at, 5, correlation=step),
            device("k", "kernel", at + 5, dur - 20, step),
            host("cudaDeviceSynchronize", "sync", at + 5, dur - 15),
        ]
    return trace([row | {"start_ns": row["start_ns"] * US, "dur_ns": row["dur_ns"] * US} for row in rows])


def test_outlier_steps() -> None:
    """A step is longer than usual above a twentieth of the step and three standard deviations, 3 × 1.4826 = 4.45 µs."""
    check_rule("outlier-steps", {
        "a step of 150 instead of 100 µs": training((*USUAL, 150)),
        "nothing was recorded in the longer time": outside_of(training((*USUAL, 150))),
        "two of 22 steps": training((*USUAL, *USUAL, 150, 160)),
        "two of 22 steps, without events": outside_of(training((*USUAL, *USUAL, 150, 160))),
        "a kernel takes longer, and the host waits for it": waiting(),
        "a step of 105 µs": training((*USUAL, 105)),
        "a step of 106 µs": training((*USUAL, 106)),
        "a step of 104 µs, without the share of the step": (training((*USUAL, 104)), {"outlier_share": 0.0}),
        "a step of 105 µs, without the share of the step": (training((*USUAL, 105)), {"outlier_share": 0.0}),
        "a usual step": training((*USUAL, 100)),
        "four steps": training((100, 100, 100, 200)),
        "five steps": training((100, 100, 100, 100, 200)),
    })  # fmt: skip


def test_each_cause_has_a_remedy() -> None:
    """Events that grew and time in which nothing was recorded have different remedies."""
    events = training((*USUAL, 150))
    [grew] = outliers(RuleInput(events))
    [idle] = outliers(RuleInput(outside_of(events)))
    [often] = outliers(RuleInput(outside_of(training((*USUAL, *USUAL, 150, 160)))))
    assert [one.words["outliers"] for one in (grew, idle, often)] == ["events", "once", "outside"]
    notes = [
        remedied(
            get_plugins().framework(framework).remedies(), "outlier-steps", "eager", {"clocks": "amd-smi"} | one.words
        ).note
        for framework in ("torch", "paddle")
        for one in (grew, idle, often)
    ]
    assert ["every N steps" in str(note) for note in notes] == [False, False, True] * 2
    assert ["If this step writes" in str(note) for note in notes] == [False, True, False] * 2
