"""Work between training steps is found by what a script does, not by how long its steps take. The times are made up."""

from __future__ import annotations

from pathlib import Path
from types import CodeType
from typing import NamedTuple

import numpy as np
import pytest

from perfkit_core.cli.record import described
from perfkit_core.plugins.frameworks import Recorded
from perfkit_core.readers.load import load
from perfkit_core.recording.between_steps import BetweenSteps, Samples, Steps, work_between
from perfkit_core.recording.script_recording import ModeSwitches
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps, WorkBetween
from perfkit_core.trace.storage import store
from tests.support.side_facts import with_clock
from tests.support.small_trace import small_trace

MS = 1_000_000
EACH = 50
"""Time between two samples, in ms."""


def code_of(name: str) -> CodeType:
    return compile("", "folder/train.py", "exec").replace(co_name=name, co_qualname=name)


MAIN, TRAIN, ROLLOUT, MODEL = map(code_of, ("<module>", "train_step", "rollout", "forward"))
TRAINING = ((MODEL, 3), (TRAIN, 8), (MAIN, 20))
ROLLING = ((MODEL, 3), (ROLLOUT, 30), (MAIN, 18))
INLINE = ((MAIN, 19),)
UPDATE = ((MODEL, 3), (code_of("step").replace(co_filename="/lib/perfkit_torch/framework.py"), 1), (MAIN, 21))


class Piece(NamedTuple):
    """Some work in a step: its length in ms, its stack, and whether the script evaluates."""

    ms: int
    stack: tuple[tuple[CodeType, int], ...]
    evaluates: bool = False


def found(steps: list[list[Piece]]) -> WorkBetween | None:
    """Return the work between the steps."""
    now, edges, evaluations, stacks = 0, [], [], []
    kinds = [TRAINING, ROLLING, INLINE, UPDATE]
    for pieces in steps:
        begin, evaluated = now, 0
        for piece in pieces:
            if piece.evaluates:
                evaluations.append((now * MS, (now + piece.ms) * MS))
                evaluated += piece.ms
            stacks += [kinds.index(piece.stack)] * piece.ms
            now += piece.ms
        edges.append((begin * MS, now * MS, (now - begin - evaluated) * MS, evaluated * MS))
    at = np.arange(EACH // 2, now, EACH)
    begin_end = np.array(evaluations, np.int64).reshape(-1, 2).T
    samples = Samples(at * MS, np.array(stacks)[at], kinds)
    return work_between(Steps(*np.array(edges, np.int64).T), (begin_end[0], begin_end[1]), samples)


STEP = [Piece(100, TRAINING)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[Piece(600, ROLLING), *STEP], STEP, STEP, STEP], ("rollout", "train.py:18", False)),  # 600 of 1000 ms
        ([[Piece(600, INLINE), *STEP], STEP, STEP, STEP], ("<module>", "train.py:19", False)),
        ([[*STEP, Piece(150, ROLLING, evaluates=True)]] * 4, ("rollout", "train.py:18", True)),  # 600 of 1000 ms
        ([[*STEP, Piece(600, ROLLING, evaluates=True)], STEP, STEP, STEP], ("rollout", "train.py:18", False)),
    ],
    ids=["rollouts", "work without a function", "an evaluation in each step", "an evaluation in some steps"],
)
def test_the_share_and_the_place(steps: list[list[Piece]], expected: tuple[str, str, bool]) -> None:
    work = found(steps * 10)
    assert work is not None
    assert work.share == pytest.approx(0.6)
    assert (work.function, work.place, work.each) == expected


def test_steps_that_take_longer_but_run_the_same_lines_are_training() -> None:
    assert found([[Piece(700, TRAINING)], STEP, STEP, STEP] * 10) is None


def test_a_work_of_little_time_is_left_out() -> None:
    assert found([[Piece(50, ROLLING, evaluates=True), *STEP], *[STEP] * 9] * 10) is None


def test_what_too_few_samples_show_is_not_known() -> None:
    short = [[Piece(90, ROLLING), Piece(10, TRAINING)], *[[Piece(10, TRAINING)]] * 5]
    assert found(short * 12) == WorkBetween(0.6)
    assert str(WorkBetween(0.6).text()).endswith("between the training steps: it is not known what runs there")


def test_an_update_that_evaluates_the_model_several_times_is_training() -> None:
    short = [[Piece(100, UPDATE)], *[[Piece(10, UPDATE)]] * 5]
    assert found(short * 12) is None


def test_few_samples_are_no_evidence() -> None:
    """Some steps of a short training take long by chance, and so do the lines of their few samples."""
    assert found([[Piece(600, ROLLING), *STEP], *[STEP] * 7]) is None
    assert found([[Piece(600, ROLLING), *STEP], *[STEP] * 25]) is None


def test_a_share_is_at_most_one_if_a_step_waited_longer_than_it_took() -> None:
    """The waits of short steps count only at the end of the next long step."""
    times = np.arange(10) * MS
    waited = Steps(times, times + MS, np.array([*[MS] * 9, -100 * MS]), np.array([*[0] * 9, 3 * MS]))
    work = work_between(waited, (times[:0], times[:0]), Samples(times[:0], times[:0], []))
    assert work is not None
    assert work.share == pytest.approx(3 / 12)


def test_an_evaluation_ends_before_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the model that stays in evaluation, such as a frozen backbone, is trained with."""

    class Module:
        training = True

        def train(self, mode: bool = True) -> None:
            self.training = mode

        def eval(self) -> None:
            self.train(False)

    times = iter(range(0, 1 << 20, 100))
    monkeypatch.setattr(BetweenSteps, "_now", lambda self: (now := next(times), now))
    work = BetweenSteps()
    hooks = ModeSwitches(Module, work.switched)
    module = Module()
    try:
        for ends in (lambda: module.train(), lambda: None, lambda: module.train()):
            work.step(0, next(times))
            module.eval()
            ends()
            module.training = True
        work.step(0, next(times))
    finally:
        hooks.end()
        work.stop()
    assert [list(evaluated) for evaluated in work._evaluations] == [[100, 600], [200, 700]]
    assert list(work._steps[3]) == [100, 0, 100]
    assert list(work._steps[2]) == [200, 200, 200]
    assert not hasattr(Module.eval, "__wrapped__")


def test_the_work_is_named_by_the_command_and_by_reports(tmp_path: Path) -> None:
    work = WorkBetween(0.6, "evaluate", "train.py:20", each=True)
    text = "60% of the time lies between the training steps: most of it in evaluate (train.py:20)"
    timed = TimedSteps((TimedStep(1, False, 1000),), between=work)
    path = store.write_cycle(with_clock(small_trace(), {"0": TimedSteps()}), tmp_path)
    store.write_steps(store.steps_path(path), {"0": timed})
    (note,) = (finding for finding in load(tmp_path).quality if finding.code == "work-between-steps")
    lines = list(described(Recorded(1, 2, timed), "", tmp_path))
    assert str(note.text) == lines[-1] == f"{text}. Most steps contain such work"
