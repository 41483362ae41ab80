"""``perfkit.profile`` records the steps of a loop. A step is one matrix product."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit_core.advice.engine import advise
from perfkit_core.api import summarize
from perfkit_core.readers.load import load
from tests.support.frameworks import Framework

Work = Callable[[], Any]


@pytest.fixture
def work(native: Framework) -> Work:
    values = native.ones(2, 2)
    return lambda: values @ values


def recorded(folder: Path, native: Framework) -> list[tuple[int, int]]:
    """Return number of step and number of operators in it, for each step."""
    trace = load(folder)
    steps = trace.ints("step")[trace.rows("kind", "step")].tolist()
    operators = trace.ints("step")[trace.rows("name", native.product)].tolist()
    return [(step, operators.count(step)) for step in steps]


def test_the_items_number_and_attributes_are_those_of_the_loader(native: Framework, work: Work, tmp_path: Path) -> None:
    class Loader(list[int]):
        batch_size = 7

    loop = perfkit.profile(Loader(range(12)), tmp_path, window=(4, 6), framework=native.name)
    assert len(loop) == 12
    assert loop.batch_size == 7
    assert not hasattr(loop, "no_such_attribute")
    seen = [(item, work())[0] for item in loop]
    assert seen == list(range(12))
    assert recorded(tmp_path, native) == [(4, 1), (5, 1), (6, 1)]
    (trace,) = [load(path) for path in tmp_path.glob("*.parquet")]
    assert {1, 2} <= {step.number for step in trace.step_clocks["-"].steps if not step.recorded}
    assert "partial-step" not in {finding.code for finding in trace.quality}


def test_steps_are_numbered_over_all_epochs(native: Framework, work: Work, tmp_path: Path) -> None:
    """``profile`` may be called in each epoch. Work between two epochs belongs to no step."""
    for _ in range(3):
        for _ in perfkit.profile(range(4), tmp_path, window=(2, 9), framework=native.name):
            work()
        work()
    assert recorded(tmp_path, native) == [(step, 1) for step in range(2, 10)]
    assert len(list(tmp_path.glob("*.parquet"))) == 3
    assert load(tmp_path).meta.ranks == (0,) or not load(tmp_path).meta.ranks


@pytest.mark.parametrize("leave", ["break", "raise", "close"])
def test_the_step_in_which_a_loop_is_left_is_not_counted(
    native: Framework, work: Work, tmp_path: Path, leave: str
) -> None:
    """The next loop begins with its number. A loop over the folder of an earlier test would go on with its steps, and
    pytest may give the folder of a test that has passed to the next test."""
    run = tmp_path / leave
    loop = perfkit.profile(iter(range(9)), run, window=(1, 5), framework=native.name)
    if leave == "break":
        for item in loop:
            work()
            if item == 3:
                break
    elif leave == "raise":

        def fail() -> None:
            for item in loop:
                work()
                1 / (3 - item)

        with pytest.raises(ZeroDivisionError):
            fail()
    else:
        generator = iter(loop)
        for _ in range(4):
            next(generator)
            work()
        generator.close()
    assert recorded(run, native)[:2] == [(1, 1), (2, 1)]
    for _ in perfkit.profile(range(4), run, window=(1, 5), framework=native.name):
        work()
    assert recorded(run, native)[2:] == [(3, 1), (4, 1), (5, 1)]


def test_a_loader_that_fails_keeps_the_steps(native: Framework, work: Work, tmp_path: Path) -> None:
    def loader() -> Any:
        yield from range(3)
        raise ZeroDivisionError

    def run() -> None:
        for _ in perfkit.profile(loader(), tmp_path, window=(0, 9), framework=native.name):
            work()

    with pytest.raises(ZeroDivisionError):
        run()
    assert recorded(tmp_path, native) == [(0, 1), (1, 1), (2, 1)]


def test_a_loop_inside_belongs_to_the_steps_of_the_outer_one(native: Framework, work: Work, tmp_path: Path) -> None:
    loop = perfkit.profile([0, 1, 2], tmp_path, window=(1, 2), framework=native.name)
    for _ in loop:
        for _ in loop:
            work()
    assert recorded(tmp_path, native) == [(1, 3), (2, 3)]


def test_the_wait_for_a_generator_is_input(native: Framework, work: Work, tmp_path: Path) -> None:
    """Each step waits at least as long as the generator sleeps. Views and advice name the generator."""

    def sleepy() -> Iterator[int]:
        for item in range(8):
            time.sleep(0.05)
            yield item

    for _ in perfkit.profile(sleepy(), tmp_path, window=(2, 6), framework=native.name):
        work()
    waits = summarize(tmp_path, "input_pipeline")
    assert waits["loader"].tolist() == ["perfkit.input:sleepy"] * 5
    assert waits["loads"].tolist() == [1] * 5
    assert (waits["input_wait_ns"] >= 50_000_000).all()
    assert (summarize(tmp_path, "steps")["dataloader_ns"] >= 50_000_000).all()
    (advice,) = [advice for advice in advise(load(tmp_path)).advice if advice.rule == "loader-workers"]
    assert str(advice.candidate.what).endswith("for the next item of sleepy.")


def test_a_loader_within_a_generator_is_counted_once(native: Framework, work: Work, tmp_path: Path) -> None:
    """The work of the generator is input, too. The call of the framework's loader shows how batches are made."""

    def slowed() -> Iterator[int]:
        for batch in native.loader(6, batch_size=1, num_workers=0):
            time.sleep(0.02)
            yield batch

    for _ in perfkit.profile(slowed(), tmp_path, window=(1, 3), framework=native.name):
        work()
    waits = summarize(tmp_path, "input_pipeline")
    assert waits["loads"].tolist() == [1] * 3
    assert not waits["loader"].str.contains("perfkit").any()
    assert (waits["input_wait_ns"] >= 20_000_000).all()
    assert (waits["input_wait_ns"] <= waits["dur_ns"]).all()


def test_a_window_that_ends_within_a_wait(native: Framework, work: Work, tmp_path: Path) -> None:
    """The generator leaves the recording, which ends the wait. The loop goes on."""
    loop: Any = None

    def ending() -> Iterator[int]:
        for item in range(5):
            if item == 3:
                loop._recording.recording._end_within_step()
                loop._recording.recording.finish()
            yield item

    loop = perfkit.profile(ending(), tmp_path, window=(1, 4), framework=native.name)
    assert len([work() for _ in loop]) == 5
    assert recorded(tmp_path, native) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_of_the_framework(native: Framework, tmp_path: Path, workers: int) -> None:
    run = tmp_path / str(workers)
    loader = native.loader(20, batch_size=2, num_workers=workers)
    options = {"record_shapes": True} if native.name == "torch" else {}
    loop = perfkit.profile(loader, run, window=(2, 6), framework=native.name, **options)
    assert (len(loop), loop.batch_size) == (10, 2)
    for batch in loop:
        batch + 1
    assert summarize(run, "steps")["step"].tolist() == [2, 3, 4, 5, 6]
    waits = summarize(run, "input_pipeline")
    assert waits["loads"].tolist() == [1] * 5
    assert not waits["loader"].str.contains("perfkit").any()
    if options:
        adds = summarize(run, "operators", by="shape")
        assert "[[2,3],[],[]]" in " ".join(map(str, adds.loc[adds["name"] == "aten::add", "shapes"]))
