"""Rule 14: the recorded threads of all processes compared with the recorded cores. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

import pytest

from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import op, steps
from tests.support.rule_cases import check_rule
from tests.support.side_facts import with_clock


def recorded(**numbers: object) -> Trace:
    return steps([op("add", 0, 10)]).with_meta(extra={"host": numbers})


def test_thread_oversubscription() -> None:
    """With four times as many threads as cores in one process, the step of 100 µs takes 0.3, 0.6 or 0.95 times as
    long."""
    numbers = [
        {"cores": 8, "threads": 4, "processes": 4}, {"cores": 8, "threads": 4, "processes": 2},
        {"cores": 8, "threads": 8}, {"cores": 8, "threads": 9}, {"cores": 2, "threads": 8},
        {}, {"cores": 8}, {"threads": 8}, {"cores": 0, "threads": 8}, {"cores": True, "threads": 4},
    ]  # fmt: skip
    titles = [", ".join(f"{name}: {number}" for name, number in host.items()) or "nothing" for host in numbers]
    check_rule(
        "thread-oversubscription",
        {title: recorded(**host) for title, host in zip(titles, numbers, strict=True)},
    )


def test_threads_that_wait_for_each_other_lose_nothing_to_other_processes() -> None:
    waits = TimedStep(1, True, 10_000, ran_ns=4_000, waited_ns=6_000, process_ns=4_000)
    recording = with_clock(recorded(cores=2, threads=2), {"-": TimedSteps((waits,), cpus=2)})
    assert recording.timed_steps.preempted == pytest.approx(0.6)
    more = recording.with_meta(extra={"host": {"cores": 2, "threads": 8}})
    assert more.timed_steps.preempted == 0
