"""Ranges that become steps (``--step-on``), on small traces whose steps are worked out by hand."""

from __future__ import annotations

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.assembly.chosen_steps import with_steps_on
from perfkit_core.trace.model.trace import Trace, concat_traces, with_rank
from tests.support.events import codes, device, host, rows, trace

pytestmark = pytest.mark.bare

ROWS = [
    host("epoch", "annotation", 0, 1_000),
    host("iter 7", "annotation", 10, 100),
    host("iter", "annotation", 20, 50),  # inside, and not a step
    host("launch", "runtime", 30, 5, correlation=1),
    device("late", "kernel", 400, 20, correlation=1),
    host("outside", "operator", 120, 10),
    host("iter 8", "annotation", 200, 90),
    host("mm", "operator", 210, 30),
    host("ProfilerStep#3", "step", 300, 600, step=3),
    host("add", "operator", 310, 30),
]


def steps_of(given: Trace) -> dict[str, int | None]:
    return dict(rows(given, "name", "step"))


def test_each_outermost_match_is_a_step_with_its_own_number() -> None:
    made = with_steps_on(trace(ROWS), "^iter")
    assert steps_of(made) == {
        "epoch": None, "iter 7": 7, "iter": 7, "launch": 7, "late": 7, "outside": None, "iter 8": 8, "mm": 8,
        "ProfilerStep#3": None, "add": None,
    }  # fmt: skip
    kinds = dict(rows(made, "name", "kind"))
    assert (kinds["iter 7"], kinds["iter"], kinds["ProfilerStep#3"]) == ("step", "annotation", "annotation")
    assert "chosen-steps" in codes(made)
    check_trace(made)


def test_a_name_is_taken_exactly_if_it_occurs() -> None:
    assert steps_of(with_steps_on(trace(ROWS), "iter")) == {
        "epoch": None, "iter 7": None, "iter": 0, "launch": 0, "late": 0, "outside": None, "iter 8": None, "mm": None,
        "ProfilerStep#3": None, "add": None,
    }  # fmt: skip


def test_without_different_numbers_the_steps_are_counted() -> None:
    made = with_steps_on(trace([host("iter 1", "annotation", at, 5) for at in (0, 10, 20)]), "iter 1")
    assert [step for _, step in rows(made, "name", "step")] == [0, 1, 2]


def test_findings_about_the_recorded_steps_go() -> None:
    before = trace([row for row in ROWS if row["kind"] != "step"])
    assert "no-steps" in codes(before)
    assert "no-steps" not in codes(with_steps_on(before, "epoch"))


def test_each_rank_has_its_own_steps() -> None:
    late = [row | {"start_ns": row["start_ns"] + 40} for row in ROWS]
    joined = concat_traces([with_rank(trace(ROWS), 0), with_rank(trace(late), 1)])
    made = with_steps_on(joined, "^iter")
    found = [(rank, name) for rank, name, step in rows(made, "rank", "name", "step") if step == 7]
    assert found == [(rank, name) for rank in (0, 1) for name in ("iter 7", "iter", "launch", "late")]


def test_a_missing_range_is_an_error_that_lists_ranges() -> None:
    with pytest.raises(UsageError, match="the recording has no such range; ranges in the recording: epoch"):
        with_steps_on(trace(ROWS), "step 1")
    joined = concat_traces([with_rank(trace(ROWS), 0), with_rank(trace(ROWS[:1]), 1)])
    with pytest.raises(UsageError, match="rank 1 has no such range"):
        with_steps_on(joined, "iter 7")
    with pytest.raises(UsageError, match="not a regular expression"):
        with_steps_on(trace(ROWS), "(")
