"""Sentences on the time of a step: which step times they say, and that no part is larger than its whole."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.base.algorithms.sample_statistics import outlying
from perfkit_core.base.language.messages import Message, english
from perfkit_core.output.report.headline import headline, work_between
from perfkit_core.output.report.source_facts import source
from perfkit_core.output.report.step_time import step_time, with_clock
from perfkit_core.output.report.summary import choose_views, summary_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks.profile import LoadedProfile
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace
from tests.support.events import host, trace
from tests.support.side_facts import with_clock as clocked
from tests.support.small_trace import small_trace

US, MS = 1_000, 1_000_000


def timed(usual_ms: float, recorded_ms: float, waited: float = 0.0) -> TimedSteps:
    """Return three steps before the recorded one, and the recorded one, with the share ``waited`` lost to others."""

    def step(number: int, recorded: bool, ms: float) -> TimedStep:
        wall = round(ms * MS)
        return TimedStep(number, recorded, wall, waited_ns=round(waited * wall), process_ns=round((1 - waited) * wall))

    return TimedSteps((*(step(at, False, usual_ms) for at in range(3, 6)), step(6, True, recorded_ms)), 0, 1)


def said(messages: Iterator[Message]) -> list[str]:
    return [english(text) for text in messages]


def test_a_step_takes_what_the_clock_on_the_wall_shows() -> None:
    assert said(with_clock(timed(63.3, 162))) == ["A step takes 63.3 ms; recording made it 162 ms."]
    assert said(with_clock(timed(60, 160, 0.25))) == [
        "A step takes 60.0 ms; recording made it 160 ms.",
        "Without waits for a processor, these are 45.0 ms and 120 ms.",
    ]
    assert said(with_clock(TimedSteps())) == []
    assert said(with_clock(TimedSteps((TimedStep(1, True, MS),)))) == ["A recorded step takes 1.00 ms."]
    assert said(with_clock(TimedSteps((TimedStep(1, False, MS),)))) == ["A step takes 1.00 ms without the profiler."]


def test_waits_for_a_processor_are_said_of_one_kind_of_steps_too() -> None:
    """The clock leaves out the first recorded step, so a window of one step has a time only in the events."""
    both = timed(60, 160, 0.25)
    off, on = (TimedSteps(tuple(step for step in both.steps if step.recorded is kind), 0, 1) for kind in (False, True))
    assert said(with_clock(off)) == [
        "A step takes 60.0 ms without the profiler.", "Without waits for a processor, this is 45.0 ms.",
    ]  # fmt: skip
    assert said(with_clock(on, 150 * MS)) == [
        "A recorded step takes 150 ms.", "Without waits for a processor, this is 120 ms.",
    ]  # fmt: skip
    assert said(with_clock(off, 150 * MS)) == [
        "A step takes 60.0 ms; recording made it 150 ms.",
        "Without waits for a processor, an unprofiled step takes 45.0 ms.",
    ]


def test_all_screens_say_the_same_step_time() -> None:
    """The source line, the summary and the page have the wall time of a step and name its time without waits."""
    trace = clocked(small_trace(), {"-": timed(60, 160, 0.25)})
    fact = source(trace).facts["Unprofiled step"].value
    assert fact == "60.0 ms (without waits for a processor 45.0 ms, 120 ms when recorded)"
    brief = summary_report(trace, choose_views(["overview"]), ViewRequest(), brief=True)
    shorter = "A step takes 60.0 ms without the profiler. The recorded steps were shorter: 9.00 ms."
    assert shorter in [*map(english, brief.headline)]
    steps = pd.DataFrame({"step": [1], "dur_ns": [9 * MS]})
    assert shorter in said(iter(headline({"steps": steps}, timed(60, 160))))


def table(**columns: list[int | None]) -> pd.DataFrame:
    """Return a table of the view steps, with times in ms."""
    return pd.DataFrame({
        "step": list(range(len(columns["dur"]))),
        **{f"{name}_ns": pd.array([None if ms is None else ms * MS for ms in values], "Int64")
           for name, values in columns.items()},
    })  # fmt: skip


def test_forward_passes_of_a_rollout_are_work_between_the_steps() -> None:
    """A step that waits for its batch is long for another reason."""
    for part, reason in (("forward", "work between the training steps"), ("dataloader", "data loading")):
        steps = table(dur=[10, 10, 10, 10, 60], **{part: [1, 1, 1, 1, 50]})
        *_, mean = said(step_time(steps, between=True))
        assert mean.endswith(f"most of its additional time is in {reason}.")


def test_work_between_the_steps_is_said_with_its_place() -> None:
    text = "38.5% of the time lies between the training steps: most of it in rollout (ppo.py:37)"
    assert [english(said) for said in work_between([Finding("work-between-steps", text, note=True)])] == [f"{text}."]


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (table(dur=[10, 10, 10, 10, 11]), ""),
        (table(dur=[10, 10, 10, 10, 60], dataloader=[1, 1, 1, 1, 50]),
         "Their mean is 20.0 ms: 1 of 5 steps is long (step 4: 60.0 ms), and most of its additional time is in data "
         "loading."),
        (table(dur=[10, 40, 10, 10, 60], dataloader=[1, 1, 1, 1, 2]),
         "Their mean is 26.0 ms: 2 of 5 steps are long (step 4: 60.0 ms, step 1: 40.0 ms), and most of their "
         "additional time is outside of all recorded phases."),
        (table(dur=[10] * 7 + [40] * 3, forward=[1] * 7 + [31, 1, 1], backward=[1] * 8 + [31, 1],
               optimizer=[1] * 9 + [31]),
         "Their mean is 19.0 ms: 3 of 10 steps are long (step 7: 40.0 ms, step 8: 40.0 ms, step 9: 40.0 ms), and most "
         "of their additional time is in several phases."),
        (table(dur=[10, 20, 30, 40, 200]),  # the steps differ by about as much as the longest but one
         "Their mean is 60.0 ms: 1 of 5 steps is long (step 4: 200 ms), and most of its additional time is outside of "
         "all recorded phases."),
        (table(dur=[10, 10, 10, 39]), "Their mean is 17.2 ms."),  # too few to call one long
        (pd.concat([table(dur=[10, 10, 10, 10, 60]).assign(rank=rank) for rank in (0, 1)], ignore_index=True),
         "Their mean is 20.0 ms: 1 of 5 steps is long (step 4: 60.0 ms), and most of its additional time is outside "
         "of all recorded phases."),
        (table(dur=[1, 10, 1, 10, 10]), "Their mean is 6.40 ms: 2 of 5 steps are much shorter."),
    ],
)  # fmt: skip
def test_steps_whose_mean_is_not_their_median_are_explained(steps: pd.DataFrame, sentence: str) -> None:
    assert said(step_time(steps))[1:] == ([sentence] if sentence else [])


def test_without_steps_a_screen_has_one_recorded_time() -> None:
    """The profiler was on for 400 us, and 100 us lie between the first and the last event: a marker of a step without
    end, and operators. Phases are shares of this time, too."""
    events = [
        host("mark", "other", 0, 0),
        host("mm", "operator", 20 * US, 10 * US),
        host("fwd", "forward", 60 * US, 25 * US, phase="forward"),
        host("mm", "operator", 90 * US, 10 * US),
    ]
    recorded = trace(events).with_meta(window_ns=(-100 * US, 300 * US))
    views = choose_views(["causes", "model"])
    report = summary_report(LoadedProfile(recorded), views, ViewRequest(), brief=True)
    assert report.sources[0].facts["Length"].value == "100 µs recorded"
    assert "no operator runs for 80% of the recorded time (80.0 µs)" in str(report.headline[0])
    assert report.sections[1].table["cpu_ratio"].tolist() == [0.25]


def test_a_long_step_is_what_advice_calls_an_outlier() -> None:
    defaults = {name: value.default for name, value in inspect.signature(outlying).parameters.items()}
    assert (defaults["sigmas"], defaults["share"]) == (Thresholds().outlier_sigmas, Thresholds().outlier_share)


def test_a_share_of_unequal_steps_has_no_time_per_step() -> None:
    """A wait of 39 ms in one of four steps is 9.75 ms per step on average, but the median step takes 10 ms."""
    causes = pd.DataFrame({
        "depth": [0, 0], "cause": ["host", "compute"], "ratio": [0.57, 0.43], "place": [None, None],
        "total_ns": [39 * MS, 30 * MS],
    })  # fmt: skip
    (first, *_) = said(iter(headline({"causes": causes, "steps": table(dur=[10, 10, 10, 39])})))
    assert first == "Overhead-bound: no operator runs for 57% of the step time."
    (first, *_) = said(iter(headline({"causes": causes, "steps": table(dur=[17, 17, 17, 18])})))
    assert "for 57% of the step time (9.69 ms)" in first  # of the median, as all times of a screen


def values(text: object) -> Iterator[dict[str, object]]:
    if isinstance(text, Message):
        yield text.values
        for value in text.values.values():
            yield from values(value)
    elif isinstance(text, tuple):
        for part in text:
            yield from values(part)


def check(trace: Trace) -> int:
    """Check the sentences of the first screen and of the advice on a trace. Return the number of parts with a whole."""
    report = summary_report(trace, choose_views(["partition", "model"]), ViewRequest(), brief=True)
    advice = [item.candidate.what for item in advise(trace).advice]
    count = 0
    for named in (named for text in (*report.headline, *advice) for named in values(text)):
        wholes = [named[name] for name in ("step", "recording", "busy") if name in named]
        limits = {"part": wholes, "waiting": wholes, "share": [1 + 1e-9], "ratio": [1 + 1e-9]}
        for name, whole in limits.items():
            part = named.get(name)
            if isinstance(part, (int, float)) and whole:
                count += 1
                assert part <= max(whole), named  # type: ignore[type-var]
    return count


def test_no_part_is_larger_than_its_whole_in_torch(torch_file: Path) -> None:
    check(load(torch_file))


def test_no_part_is_larger_than_its_whole_in_paddle(paddle_file: Path) -> None:
    check(load(paddle_file))


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.pb"])
def test_parts_are_checked(name: str) -> None:
    """Without this test, sentences without numbers would pass."""
    assert check(load(Path(__file__).parents[2] / "data" / name))
