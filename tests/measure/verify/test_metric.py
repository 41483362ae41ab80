"""Tests of the metric: printed numbers and step times."""

from __future__ import annotations

import pytest

from perfkit_core.errors import CaptureError, UsageError
from perfkit_core.measure.verify.runs import Finished, Metric
from perfkit_core.measure.verify.step_times import StepTimes


@pytest.mark.parametrize(
    ("metric", "out", "expected"),
    [
        ("step_ms", "step_ms: 12.5\n", 12.5),
        ("step_ms", "step_ms: 1\nstep_ms: 2\nother: 3\n", 2),  # the last match counts
        ("step_ms", '{"step_ms": 4.5e-1}', 0.45),
        ("step_ms", "step_ms = 7 ms", 7),
        ("step ms", "step ms 7", 7),
        ("ms", "step_ms: 1\nms: 2\nms_per: 3\n", 2),  # the name must match completely
        ("step_ms: ([0-9.]+)", "step_ms: 12.5 step_ms: 13.5", 13.5),
        (r"^took (\d+)", "we took 5\ntook 6\n", 6),
        ("step_ms", "step_ms: 10, loss: 2", 10),
        ("step_ms", '{"step_ms":10,"loss":2}', 10),
        ("step_ms", "step_ms: 10.\n20", 10),
        (r"of (\d+),\d+", "of 10,20", 10),  # the pattern defines where the number ends
    ],
)
def test_printed_numbers(metric: str, out: str, expected: float) -> None:
    assert Metric(metric).printed("cmd", Finished(out, "")) == expected


def test_stderr_counts_where_stdout_has_nothing() -> None:
    metric = Metric("rate", higher_is_better=True)
    assert metric.printed("cmd", Finished("no rate here", "rate: 3")) == 3
    assert metric.printed("cmd", Finished("rate: 4", "rate: 3")) == 4


@pytest.mark.parametrize(
    ("metric", "out", "reason"),
    [
        ("step_ms", "steps: 3", "printed nothing that matches --metric 'step_ms'"),
        ("step_ms: (.*)", "step_ms: fast", "'fast', which is not a number"),
        ("step_ms", "step_ms: 0", "only positive numbers"),
        ("step_ms", "step_ms: -3", "only positive numbers"),
        ("step_ms: (.*)", "step_ms: nan", "only positive numbers"),
        ("step_ms", "step_ms: 1,010", "printed 1,010, which may be one number or several"),
        ("step_ms", "step_ms: 1,5 ms", "printed 1,5, which"),
        ("step_ms", "step_ms: 1.010,5", "printed 1.010,5, which"),
        ("took", "took 1:30", "printed 1:30, which"),
        ("step_ms: ([0-9.]+)", "step_ms: 1,010", "printed 1,010, which"),
        ("([0-9.]+) ms", "took 1,010 ms", "printed 1,010, which"),
    ],
)
def test_what_cannot_be_compared(metric: str, out: str, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        Metric(metric).printed("python a.py", Finished(out, ""))


@pytest.mark.parametrize("metric", ["(a)(b)", "step_ms: ([0-9"])
def test_what_is_no_metric(metric: str) -> None:
    with pytest.raises(UsageError, match="--metric"):
        Metric(metric)


def test_a_longer_step_is_not_better() -> None:
    with pytest.raises(UsageError, match="--higher-is-better does not apply"):
        Metric(higher_is_better=True)


def times(*step_ns: int) -> StepTimes:
    return StepTimes("one", "host clock", step_ns)


def test_warm_up_steps_are_left_out() -> None:
    """Two warm-up steps are left out, but never more than half of the steps: of three steps, only one is left out."""
    metric = Metric(warmup_steps=2)
    assert metric.slowest("cmd", [times(900, 900, 10, 20, 30, 40)]).mean_ns == 25
    assert metric.slowest("cmd", [times(900, 10, 20)]).mean_ns == 15
    assert metric.slowest("cmd", [times(7)]).mean_ns == 7


def test_of_several_processes_the_slowest_counts() -> None:
    assert Metric(warmup_steps=0).slowest("cmd", [times(10, 10), times(), times(30, 30), times(20)]).mean_ns == 30


def test_missing_steps_raise_an_error() -> None:
    with pytest.raises(CaptureError, match=r"no steps were recorded in 'python a\.py'"):
        Metric().slowest("python a.py", [])
