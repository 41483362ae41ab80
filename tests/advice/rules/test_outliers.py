"""Rule 36: steps that take longer than usual, the events that grew, and a device whose clock drops. Times are in µs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfkit_core.advice.predict import predict
from perfkit_core.advice.remedies import remedied
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.outlier_steps import find as outliers
from perfkit_core.advice.thresholds import overridden
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

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


def test_the_slow_step_and_its_grown_events() -> None:
    facts = RuleInput(training((*USUAL, 150)))
    [found] = outliers(facts)
    assert (found.evidence["steps"], found.evidence["longer_ns"]) == ([10], 50 * US)
    assert found.evidence["grown_ns"] == {"slow": 50 * US}  # 90 µs instead of the median of 40 µs
    assert facts.trace.ints("step")[found.rows].tolist() == [10]
    assert predict(facts, found).saving_ns is None


def test_each_cause_has_a_remedy() -> None:
    """Events that grew, time in which nothing was recorded, and a slower clock have different remedies."""
    events = training((*USUAL, 150))
    [grew] = outliers(RuleInput(events))
    [idle] = outliers(RuleInput(outside_of(events)))
    [clock] = outliers(RuleInput(kernels((1.2, 1.2, 1.2))))
    [often] = outliers(RuleInput(outside_of(training((*USUAL, *USUAL, 150, 160)))))
    assert [one.words["outliers"] for one in (grew, idle, often, clock)] == ["events", "once", "outside", "clock"]
    assert str(idle.what).startswith(
        "Once, in step 10, the time without recorded events is 50.0 µs longer than in the other steps"
    )
    assert str(clock.what).startswith("The same 3 kernels take 1.2 times as long in the last third of the steps")
    notes = [
        remedied(
            get_plugins().framework(framework).remedies(), "outlier-steps", "eager", {"clocks": "amd-smi"} | one.words
        ).note
        for framework in ("torch", "paddle")
        for one in (grew, idle, often, clock)
    ]
    assert ["amd-smi" in str(note) for note in notes] == [False, False, False, True] * 2
    assert ["every N steps" in str(note) for note in notes] == [False, False, True, False] * 2
    assert ["If this step writes" in str(note) for note in notes] == [False, True, False, False] * 2


def test_waits_for_the_device_do_not_count_as_growth() -> None:
    """In the last step, the kernel takes 50 µs longer. The call that waits for the kernel does not count as grown."""
    rows = []
    for step, dur in enumerate((*USUAL, 150)):
        at = sum((*USUAL, 150)[:step])
        rows += [
            host(f"step {step}", "step", at, dur, step=step),
            host("launch", "runtime", at, 5, correlation=step),
            device("k", "kernel", at + 5, dur - 20, step),
            host("cudaDeviceSynchronize", "sync", at + 5, dur - 15),
        ]
    [found] = outliers(
        RuleInput(trace([row | {"start_ns": row["start_ns"] * US, "dur_ns": row["dur_ns"] * US} for row in rows]))
    )
    assert found.evidence["grown_ns"] == {"k": 50 * US}


@pytest.mark.parametrize(("last", "fires"), [(105, False), (106, True), (100, False)])
def test_a_twentieth_of_the_step_is_usual(last: int, fires: bool) -> None:
    assert bool(outliers(RuleInput(training((*USUAL, last))))) == fires


@pytest.mark.parametrize(("last", "fires"), [(104, False), (105, True)])
def test_three_standard_deviations_are_usual(last: int, fires: bool) -> None:
    """The limit is 3 × 1.4826 = 4.45 µs above the median of 100 µs."""
    facts = RuleInput(training((*USUAL, last)), overridden({"outlier_share": 0.0}))
    assert bool(outliers(facts)) == fires


def test_singular_and_plural_of_steps() -> None:
    [one] = outliers(RuleInput(training((*USUAL, 150))))
    assert str(one.what).startswith(
        "1 of 11 steps takes 50.0 µs longer than the usual 100 µs: step 10; these events take longer"
    )
    [two] = outliers(RuleInput(training((*USUAL, *USUAL, 150, 160))))
    assert "2 of 22 steps take " in str(two.what)
    assert "steps 20 and 21;" in str(two.what)


def test_five_steps_are_needed() -> None:
    with pytest.raises(NotEvaluableError, match="fewer than 5 steps"):
        outliers(RuleInput(training((100, 100, 100, 200))))
    [found] = outliers(RuleInput(training((100, 100, 100, 100, 200))))
    assert found.evidence["steps"] == [4]


def kernels(factors: Sequence[float], names: str = "abc") -> Trace:
    """Return nine steps with kernels of 100 µs, which take ``factors`` times as long in the last three steps."""
    late = [round(100 * factor) for factor in factors]
    return of_kernels([[100] * len(factors)] * 6 + [late] * 3, names)


def of_kernels(steps: Sequence[Sequence[int]], names: str = "abc") -> Trace:
    """Return steps of 1000 µs with kernels of these durations."""
    rows = []
    for step, durations in enumerate(steps):
        rows.append(host(f"step {step}", "step", step * 1000, 1000, step=step))
        for index, (name, dur) in enumerate(zip(names, durations, strict=True)):
            number = 10 * step + index
            rows.append(host("launch", "runtime", step * 1000 + index, 1, correlation=number))
            rows.append(device(name, "kernel", step * 1000 + 200 * (index + 1), dur, number))
    return trace([row | {"start_ns": row["start_ns"] * US, "dur_ns": row["dur_ns"] * US} for row in rows])


def test_all_kernels_get_slower_when_the_clock_drops() -> None:
    [found] = outliers(RuleInput(kernels((1.2, 1.2, 1.2))))
    assert found.evidence["factor"] == pytest.approx(1.2)
    assert (found.evidence["kernels"], found.method) == (3, "none")


def test_the_last_third_of_the_steps_is_compared_with_the_first() -> None:
    """The medians of the first three and the last three steps are 110 and 143."""
    steps = [100, 110, 120, 300, 300, 300, 133, 143, 153]
    [found] = outliers(RuleInput(of_kernels([[dur] * 3 for dur in steps])))
    assert found.evidence["factor"] == pytest.approx(143 / 110)


@pytest.mark.parametrize(
    ("factors", "names"),
    [((1.05, 1.05, 1.05), "abc"), ((1.8, 1.0, 1.0), "abc"), ((1.2, 1.2), "ab"), ((1.0,) * 3, "abc")],
)
def test_a_clock_that_does_not_drop(factors: Sequence[float], names: str) -> None:
    """The cases are a small factor, a single slower kernel, too few kernels, and no change."""
    assert outliers(RuleInput(kernels(factors, names))) == []
