"""An event belongs to the step in which it starts. Device work belongs to the step of its launch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.trace.assembly import steps
from tests.support.events import codes, column, device, host, trace


def two_steps(*more: dict[str, object]) -> list[dict[str, object]]:
    return [
        host("step 3", "step", 100, 100, step=3),
        host("step 4", "step", 200, 100, step=4),
        host("in 3", "operator", 110, 10),
        host("in 4", "operator", 210, 10),
        *more,
    ]


def test_an_event_is_in_the_step_in_which_it_starts() -> None:
    """Steps are half-open: an event at the end of a step belongs to the next step. Events before and after all steps
    belong to no step."""
    rows = two_steps(
        host("before", "operator", 90, 200, tid=2),
        host("across", "operator", 190, 50, tid=2),
        host("at the border", "operator", 200, 0, tid=2),
        host("after", "operator", 300, 5, tid=2),
    )
    step = column(trace(rows), "step")
    assert [step[name] for name in ("step 3", "in 3", "across")] == [3, 3, 3]
    assert [step[name] for name in ("step 4", "in 4", "at the border")] == [4, 4, 4]
    assert step["before"] is step["after"] is None


def test_device_work_is_in_the_step_of_its_launch() -> None:
    rows = two_steps(
        host("launch", "runtime", 195, 2, correlation=1),
        device("late", "kernel", 400, 50, correlation=1),
        device("unlaunched", "kernel", 150, 10),
    )
    step = column(trace(rows), "step")
    assert (step["late"], step["unlaunched"]) == (3, None)


def test_a_recording_of_devices_only_is_explained() -> None:
    alone = trace([device("kernel", "kernel", 400, 50), host("launch", "runtime", 300, 5)])
    (text,) = [finding.message for finding in alone.quality if finding.code == "no-steps"]
    assert "add the CPU to the activities or targets" in text
    with_host = trace([device("kernel", "kernel", 400, 50), host("operator", "operator", 300, 5)])
    assert [f.message[:34] for f in with_host.quality if f.code == "no-steps"] == ["no training steps were recorded: c"]


def test_steps_without_numbers_are_counted_from_zero() -> None:
    rows = [host(name, "step", start, 10) for name, start in (("a", 0), ("b", 10))]
    rows += [host("op a", "operator", 1, 1), host("op b", "operator", 11, 1)]
    assert column(trace(rows), "step") == {"a": 0, "op a": 0, "b": 1, "op b": 1}


def test_a_last_step_in_which_nothing_took_place_is_no_step() -> None:
    """A loop that calls step() after each iteration opens one step too many."""
    found = trace([*two_steps(), host("step 5", "step", 300, 50, step=5)])
    assert column(found, "kind")["step 5"] == "other"
    assert "partial-step" not in codes(found)
    (text,) = [f.message for f in found.quality if f.code == "empty-last-step"]
    assert text == "step 5 had just begun when the recording ended and has no events: it is left out"


def test_a_data_loader_that_has_ended_is_no_step() -> None:
    """The last step computes only inside the data loader, on the loader's thread. With other work in addition, it is a
    step."""
    rows = [*two_steps(), host("step 5", "step", 300, 50, step=5), host("next", "dataloader", 310, 20)]
    shuffled = host("shuffle", "operator", 312, 10)
    assert "empty-last-step" in codes(trace([*rows, shuffled]))
    for other in (host("op", "operator", 331, 5), host("op", "operator", 312, 10, tid=2)):
        found = trace([*rows, shuffled, other])
        assert "empty-last-step" not in codes(found)
        assert column(found, "kind")["step 5"] == "step"


def test_steps_that_do_nothing_but_load_data_are_steps() -> None:
    rows = []
    for number in range(3):
        rows += [host(f"step {number}", "step", 100 * number, 100, step=number)]
        rows += [host(f"next {number}", "dataloader", 100 * number, 50), host("op", "operator", 100 * number + 5, 5)]
    assert "empty-last-step" not in codes(trace(rows))
    assert "empty-last-step" in codes(trace(rows[:-1]))


def test_a_step_that_was_cut_off_is_reported_and_not_counted() -> None:
    found = trace([*two_steps(), host("cut", "other", 300, 50, step=5), host("in cut", "operator", 310, 5)])
    assert column(found, "step")["in cut"] is None
    assert "partial-step" in codes(found)
    assert "empty-last-step" not in codes(found)


def test_a_step_cut_off_before_any_event_is_empty() -> None:
    """Events before the step, and an event that begins when it ends, are not in the step."""
    rows = [*two_steps(), host("before", "operator", 290, 20, tid=2), host("cut", "other", 300, 50, step=5)]
    found = trace([*rows, host("after", "operator", 350, 5)])
    assert "empty-last-step" in codes(found)
    assert "partial-step" not in codes(found)


def test_a_step_cut_off_without_a_duration_lasts_to_the_end() -> None:
    found = trace([*two_steps(), host("cut", "other", 300, 0, step=5), host("in cut", "operator", 310, 5)])
    assert "partial-step" in codes(found)


def test_no_steps_is_a_finding_and_every_step_null() -> None:
    found = trace([host("op", "operator", 0, 5)])
    assert column(found, "step") == {"op": None}
    (said,) = [finding.message for finding in found.quality if finding.code == "no-steps"]
    assert said.endswith(
        "choose a range with --step-on RANGE, or give the profiler a schedule and call its step() after each iteration"
    )


def test_overlapping_steps_are_reported_and_the_latest_counts() -> None:
    rows = [host("a", "step", 0, 100, step=0), host("b", "step", 50, 100, step=1), host("op", "operator", 60, 5)]
    found = trace(rows)
    assert column(found, "step")["op"] == 1
    assert "overlapping-steps" in codes(found)


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


def test_a_repeated_step_number_is_a_finding() -> None:
    found = trace([host("a", "step", 0, 10, step=2), host("b", "step", 10, 10, step=2), host("op", "operator", 12, 1)])
    assert "repeated-step-numbers" in codes(found)


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


def test_device_work_of_the_warm_up_is_not_counted() -> None:
    """A profiler records the device before the host. Calls of the runtime may be of the warm-up, too."""
    rows = [
        host("warm launch", "runtime", 10, 2, correlation=1),
        device("launched early", "kernel", 20, 10, correlation=1),
        device("copied early", "memcpy", 30, 10, correlation=77),
        device("runs on", "kernel", 40, 20, correlation=79),
        host("outside", "operator", 50, 10),
        device("without launch", "kernel", 60, 10, correlation=78),
    ]
    found = trace(two_steps(*rows))
    kinds = column(found, "kind")
    assert [name for name, kind in kinds.items() if kind == "other"] == ["launched early", "copied early"]
    note = next(finding for finding in found.quality if finding.code == steps.WARM_UP)
    assert note.note
    assert note.message.startswith("2 kernels and copies (20 ns) belong to the profiler's warm-up")
    assert next(f.message for f in found.quality if "without-launch" in f.code).startswith("2 of 2 ")
    without_steps = trace(rows)
    assert "other" not in column(without_steps, "kind").values()
    assert steps.WARM_UP not in codes(without_steps)
