"""What ``perfkit.profile`` must do in every framework. ``work`` is one step; ``operator`` is the recorded name of its
only operator, such as a matrix product."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit_core.readers.load import load

Work = Callable[[], Any]


def recorded(folder: Path, operator: str) -> list[tuple[int, int]]:
    """Return number of step and number of operators in it, for each step."""
    trace = load(folder)
    steps = trace.ints("step")[trace.rows("kind", "step")].tolist()
    operators = trace.ints("step")[trace.rows("name", operator)].tolist()
    return [(step, operators.count(step)) for step in steps]


def check_the_window(work: Work, operator: str, folder: Path, framework: str) -> None:
    """The items, their number and the attributes are those of the loader."""

    class Loader(list[int]):
        batch_size = 7

    loop = perfkit.profile(Loader(range(12)), folder, window=(4, 6), framework=framework)
    assert len(loop) == 12
    assert loop.batch_size == 7
    assert not hasattr(loop, "no_such_attribute")
    seen = [(item, work())[0] for item in loop]
    assert seen == list(range(12))
    assert recorded(folder, operator) == [(4, 1), (5, 1), (6, 1)]
    (trace,) = [load(path) for path in folder.glob("*.parquet")]
    assert {1, 2} <= {step.number for step in trace.step_clocks["-"].steps if not step.recorded}
    assert "partial-step" not in {finding.code for finding in trace.quality}


def check_epochs(work: Work, operator: str, folder: Path, framework: str) -> None:
    """Steps are numbered over all epochs, also if ``profile`` is called in each epoch. Work between two epochs belongs
    to no step."""
    for _ in range(3):
        for _ in perfkit.profile(range(4), folder, window=(2, 9), framework=framework):
            work()
        work()
    assert recorded(folder, operator) == [(step, 1) for step in range(2, 10)]
    assert len(list(folder.glob("*.parquet"))) == 3
    assert load(folder).meta.ranks == (0,) or not load(folder).meta.ranks


def check_a_loop_that_is_left(work: Work, operator: str, folder: Path, framework: str, leave: str) -> None:
    """The step in which the loop is left is not counted. The next loop begins with its number."""
    loop = perfkit.profile(iter(range(9)), folder, window=(1, 5), framework=framework)
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
    assert recorded(folder, operator)[:2] == [(1, 1), (2, 1)]
    for _ in perfkit.profile(range(4), folder, window=(1, 5), framework=framework):
        work()
    assert recorded(folder, operator)[2:] == [(3, 1), (4, 1), (5, 1)]


def check_a_loader_that_fails(work: Work, operator: str, folder: Path, framework: str) -> None:
    def loader() -> Any:
        yield from range(3)
        raise ZeroDivisionError

    def run() -> None:
        for _ in perfkit.profile(loader(), folder, window=(0, 9), framework=framework):
            work()

    with pytest.raises(ZeroDivisionError):
        run()
    assert recorded(folder, operator) == [(0, 1), (1, 1), (2, 1)]


def check_a_loop_inside(work: Work, operator: str, folder: Path, framework: str) -> None:
    """A loop within the loop belongs to the steps of the outer one."""
    loop = perfkit.profile([0, 1, 2], folder, window=(1, 2), framework=framework)
    for _ in loop:
        for _ in loop:
            work()
    assert recorded(folder, operator) == [(1, 3), (2, 3)]


CHECKS = {
    "window": check_the_window,
    "epochs": check_epochs,
    "break": lambda *given: check_a_loop_that_is_left(*given, "break"),
    "raise": lambda *given: check_a_loop_that_is_left(*given, "raise"),
    "close": lambda *given: check_a_loop_that_is_left(*given, "close"),
    "loader fails": check_a_loader_that_fails,
    "loop inside": check_a_loop_inside,
}
