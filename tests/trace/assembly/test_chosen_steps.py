"""Ranges that become steps (``--step-on``), on small traces whose steps are worked out by hand."""

from __future__ import annotations

import pytest

from perfkit_core import summarize
from perfkit_core.errors import UsageError
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.assembly.chosen_steps import with_steps_on
from perfkit_core.trace.model.trace import concat_traces, with_rank
from perfkit_core.views.steps.inferred_steps import with_inferred_steps
from tests.support.events import codes, device, host, rows, trace
from tests.support.tables import check_events

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


def test_the_chosen_steps() -> None:
    """Each outermost match is a step with its own number. A name is taken exactly if it occurs. Findings about the
    recorded steps go."""
    without = trace([row for row in ROWS if row["kind"] != "step"])
    assert "no-steps" in codes(without)
    check_events("trace/chosen_steps.txt", {
        "^iter": with_steps_on(trace(ROWS), "^iter"),
        "iter": with_steps_on(trace(ROWS), "iter"),
        "without different numbers, steps are counted":
            with_steps_on(trace([host("iter 1", "annotation", at, 5) for at in (0, 10, 20)]), "iter 1"),
        "epoch, without recorded steps": with_steps_on(without, "epoch"),
    }, "kind step")  # fmt: skip
    check_trace(with_steps_on(trace(ROWS), "^iter"))


@pytest.mark.parametrize("function", ["train.py:train_step", "pkg/train.py:train_step", "pkg.train:Trainer.train_step",
                                      "train_step"])  # fmt: skip
def test_the_calls_of_a_function(function: str) -> None:
    """As ``perfkit record --step-on`` takes a function, by the names of the recorded Python frames. The calls inside
    another call, and those of functions with a similar name, are not steps."""
    names = {
        0: "/home/pkg/train.py(7): train_step", 100: "/home/pkg/train.py(7): train_step",
        10: "/home/pkg/train.py(7): train_step", 200: "/home/pkg/train.py(9): train_step_end",
        300: "pkg/pretrain.py(7): step",
    }  # fmt: skip
    frames = [host(name, "python", at, 20 if at == 10 else 80, tid=3) for at, name in names.items()]
    changed = with_steps_on(trace([*ROWS, *frames]), function)
    assert [row[2:] for row in rows(changed, "kind", "step", "start_ns", "dur_ns") if row[0] == "step"] == [
        (0, 80), (100, 80)
    ]  # fmt: skip


def test_none_takes_the_whole_recording() -> None:
    """Also of a recording with a range of a similar name, which a pattern would match."""
    changed = with_steps_on(trace([*ROWS, host("nonexistent", "annotation", 300, 5)]), "none")
    assert {(kind == "step", step) for kind, step in rows(changed, "kind", "step")} == {(False, None)}
    assert not with_inferred_steps(changed).rows("kind", "step").any()
    assert [finding.code for finding in changed.quality].count("chosen-steps") == 1
    assert "no-steps" not in [finding.code for finding in changed.quality]


@pytest.mark.parametrize("pattern", ["none", "epoch"])
def test_a_recorded_step_is_no_cause_once_it_is_no_step(pattern: str) -> None:
    """It only marks a time: where nothing else was recorded, nothing is known, and it is the place of nothing."""
    marker = host("ProfilerStep#3", "step", 300, 600, step=3)
    operators = [host("mm", "operator", 310, 60), host("mm", "operator", 800, 60)]
    changed = with_steps_on(trace([host("epoch", "annotation", 0, 1_000), marker, *operators]), pattern)
    causes = summarize(changed, "causes")
    around = {"none": {"ranges without recorded detail", "epoch"}, "epoch": {"not recorded"}}  # a step is no cause
    assert set(causes["cause"]) == {"host", "compute", "mm"} | around[pattern]
    assert set(causes["place"].dropna()) <= {"epoch"}


def test_each_rank_has_its_own_steps() -> None:
    late = [row | {"start_ns": row["start_ns"] + 40} for row in ROWS]
    joined = concat_traces([with_rank(trace(ROWS), 0), with_rank(trace(late), 1)])
    made = with_steps_on(joined, "^iter")
    found = [(rank, name) for rank, name, step in rows(made, "rank", "name", "step") if step == 7]
    assert found == [(rank, name) for rank in (0, 1) for name in ("iter 7", "iter", "launch", "late")]


def test_a_missing_range_is_an_error_that_lists_ranges() -> None:
    with pytest.raises(UsageError, match=r"the recording has no range.*; ranges in the recording: epoch.*not recorded"):
        with_steps_on(trace(ROWS), "step 1")
    joined = concat_traces([with_rank(trace(ROWS), 0), with_rank(trace(ROWS[:1]), 1)])
    with pytest.raises(UsageError, match="rank 1 has no range, operator or Python frame"):
        with_steps_on(joined, "iter 7")
    with pytest.raises(UsageError, match="not a regular expression"):
        with_steps_on(trace(ROWS), "(")
