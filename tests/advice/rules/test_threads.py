"""Rule 14: the recorded threads of all processes compared with the recorded cores."""

from __future__ import annotations

import pytest

from perfkit_core.advice.rules.thread_oversubscription import find as oversubscribed
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import found, op, predicted, steps, why_not
from tests.support.side_facts import with_clock


def recorded(**numbers: object) -> Trace:
    return steps([op("add", 0, 10)]).with_meta(extra={"host": numbers})


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_more_threads_than_cores(framework: str) -> None:
    (one,) = found(oversubscribed, recorded(cores=8, threads=4, processes=4).with_meta(framework=framework))
    assert (one.method, one.after_ns) == ("none", None)  # no saving is predicted
    assert one.evidence["proposed_threads"] == 2
    assert one.fill["threads"] == "2"


def test_all_work_of_the_host_takes_less_time() -> None:
    """The step of 100 µs takes 0.3, 0.6 or 0.95 times as long."""
    recording = recorded(cores=2, threads=8)
    (one,) = found(oversubscribed, recording)
    assert predicted(recording, one) == (30_000, 60_000, 95_000)


def test_threads_that_wait_for_each_other_lose_nothing_to_other_processes() -> None:
    waits = TimedStep(1, True, 10_000, ran_ns=4_000, waited_ns=6_000, process_ns=4_000)
    recording = with_clock(recorded(cores=2, threads=2), {"-": TimedSteps((waits,), cpus=2)})
    assert recording.timed_steps.preempted == pytest.approx(0.6)
    more = recording.with_meta(extra={"host": {"cores": 2, "threads": 8}})
    assert more.timed_steps.preempted == 0


def test_as_many_threads_as_cores() -> None:
    assert found(oversubscribed, recorded(cores=8, threads=4, processes=2)) == []
    assert found(oversubscribed, recorded(cores=8, threads=8)) == []
    assert len(found(oversubscribed, recorded(cores=8, threads=9))) == 1


@pytest.mark.parametrize(
    "numbers", [{}, {"cores": 8}, {"threads": 8}, {"cores": 0, "threads": 8}, {"cores": True, "threads": 4}]
)
def test_what_was_not_recorded(numbers: dict[str, object]) -> None:
    assert "nproc" in why_not(oversubscribed, recorded(**numbers))
