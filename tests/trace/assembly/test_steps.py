"""An event belongs to the step in which it starts. Device work belongs to the step of its launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.trace.assembly import steps
from tests.support.events import codes, column, device, host, trace
from tests.support.tables import check_events


def two_steps(*more: dict[str, object]) -> list[dict[str, object]]:
    return [
        host("step 3", "step", 100, 100, step=3),
        host("step 4", "step", 200, 100, step=4),
        host("in 3", "operator", 110, 10),
        host("in 4", "operator", 210, 10),
        *more,
    ]


def test_the_steps_of_events() -> None:
    """Steps are half-open: an event at the end of a step belongs to the next step. Events before and after all steps
    belong to no step. A loop that calls step() after each iteration opens one step too many."""
    last = host("step 5", "step", 300, 50, step=5)
    cut = host("cut", "other", 300, 50, step=5)
    ended = [*two_steps(), last, host("next", "dataloader", 310, 20), host("shuffle", "operator", 312, 10)]
    loading = [
        row for n in range(3) for row in (
            host(f"step {n}", "step", 100 * n, 100, step=n), host(f"next {n}", "dataloader", 100 * n, 50),
            host("op", "operator", 100 * n + 5, 5),
        )
    ]  # fmt: skip
    warm_up = [
        host("warm launch", "runtime", 10, 2, correlation=1),
        device("launched early", "kernel", 20, 10, correlation=1),
        device("copied early", "memcpy", 30, 10, correlation=77),
        device("runs on", "kernel", 40, 20, correlation=79),
        host("outside", "operator", 50, 10),
        device("without launch", "kernel", 60, 10, correlation=78),
    ]
    alone = [device("kernel", "kernel", 400, 50), host("launch", "runtime", 300, 5)]
    cases = {
        "an event is in the step in which it starts": two_steps(
            host("before", "operator", 90, 200, tid=2),
            host("across", "operator", 190, 50, tid=2),
            host("at the border", "operator", 200, 0, tid=2),
            host("after", "operator", 300, 5, tid=2),
        ),
        "device work is in the step of its launch": two_steps(
            host("launch", "runtime", 195, 2, correlation=1),
            device("late", "kernel", 400, 50, correlation=1),
            device("unlaunched", "kernel", 150, 10),
        ),
        "a recording of devices only": alone,
        "with an event of the host": [*alone, host("operator", "operator", 300, 5)],
        "no steps": [host("op", "operator", 0, 5)],
        "steps without numbers are counted from 0": [
            host("a", "step", 0, 10), host("b", "step", 10, 10), host("op a", "operator", 1, 1),
            host("op b", "operator", 11, 1),
        ],
        "a last step in which nothing took place is no step": [*two_steps(), last],
        "nor a last step that computes only inside a data loader, on the loader's thread": ended,
        "with other work in addition, it is a step": [*ended, host("op", "operator", 331, 5)],
        "or with work on another thread": [*ended, host("op", "operator", 312, 10, tid=2)],
        "steps that do nothing but load data are steps": loading,
        "without work in the last one, that one is none": loading[:-1],
        "a step that was cut off is reported and not counted": [*two_steps(), cut, host("in cut", "operator", 310, 5)],
        "without a duration, it lasts to the end":
            [*two_steps(), cut | {"dur_ns": 0}, host("in cut", "operator", 310, 5)],
        "cut off before any event, it is empty: events before the step, and at its end, are not in it": [
            *two_steps(), host("before", "operator", 290, 20, tid=2), cut, host("after", "operator", 350, 5),
        ],
        "of overlapping steps, the latest counts": [
            host("a", "step", 0, 100, step=0), host("b", "step", 50, 100, step=1), host("op", "operator", 60, 5),
        ],
        "a repeated step number": [
            host("a", "step", 0, 10, step=2), host("b", "step", 10, 10, step=2), host("op", "operator", 12, 1),
        ],
        "a profiler records the device before the host: device work of the warm-up is not counted": two_steps(*warm_up),
        "without steps, there is no warm-up": warm_up,
    }  # fmt: skip
    traces = {name: trace(rows) for name, rows in cases.items()}
    check_events("trace/steps.txt", traces, "kind step", without="no-phases no-device-events")


@pytest.mark.parametrize(
    ("shift", "length", "kept"), [(90, 100, "p"), (10, 20, "p"), (-95, 100, "q"), (50, 100, "both")]
)
def test_steps_of_a_second_profiler_are_not_counted(shift: int, length: int, kept: str) -> None:
    """Each profiler marks steps when its step() is called, just after the other one, or within a step of it."""
    us = 1000
    outer = [host(f"p{n}", "step", 100 * n * us, 100 * us + (kept == "p"), step=n) for n in range(1, 4)]
    inner = [host(f"q{n}", "step", (100 * n + shift) * us, length * us + (kept == "q"), step=n) for n in range(1, 4)]
    found = trace([*outer, *inner, *(host(f"op{n}", "operator", (100 * n + 50) * us, 5) for n in range(1, 4))])
    kinds = column(found, "kind")
    counted = {name for name, kind in kinds.items() if kind == "step"}
    if kept == "both":
        assert counted == {"p1", "p2", "p3", "q1", "q2", "q3"}
        return
    assert counted == {f"{kept}{n}" for n in range(1, 4)}
    (text,) = [finding.message for finding in found.quality if finding.code == "steps-of-several-profilers"]
    assert text == "2 profilers marked steps at the same time: 3 of 6 recorded steps are not counted"
    assert "repeated-step-numbers" not in codes(found)


@given(
    st.lists(st.integers(0, 20), max_size=20), st.lists(st.tuples(st.integers(0, 20), st.integers(-1, 9)), max_size=5)
)
def test_a_time_is_in_the_last_step_that_began_and_has_not_ended(
    times: list[int], spans: list[tuple[int, int]]
) -> None:
    """Steps may overlap, be empty or endless, and begin at the same time."""
    times, spans = sorted(times), sorted(spans)
    begun = [[i for i, (start, _) in enumerate(spans) if start <= time] for time in times]
    last = [found[-1] if found else None for found in begun]
    expected = [-1 if i is None or time >= sum(spans[i]) else 10 + i for time, i in zip(times, last, strict=True)]
    start, dur = np.array(spans, np.int64).reshape(-1, 2).T
    found = steps._step_at(np.array(times, np.int64), start, start + dur, 10 + np.arange(len(spans)))
    assert found.tolist() == expected
