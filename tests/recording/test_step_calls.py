"""``--step-on`` finds the function of a script, and leaves the script otherwise as it is."""

from __future__ import annotations

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.recording.step_calls import StepCalls, step_end

SCRIPT = b"""
if True:
    class Trainer:
        @staticmethod
        def step(depth):
            if depth:
                Trainer.step(depth - 1)
            return "stepped"
returned = [Trainer.step(2) for _ in range(3)]
"""


def test_outermost_calls_end_steps() -> None:
    calls, seen = StepCalls("", "Trainer.step"), []
    calls.watch(lambda: seen.append("after"), lambda: seen.append("before"))
    names = calls.names()
    exec(calls.compiled(SCRIPT, "train.py"), names)
    assert names["returned"] == ["stepped"] * 3
    assert seen == ["before", "after"] * 3
    calls.end()
    names["Trainer"].step(0)
    assert len(seen) == 6


def test_an_unknown_function_is_named_with_similar_ones() -> None:
    with pytest.raises(UsageError, match=r"train.py has no function Trainer.steps; did you mean Trainer.step\?"):
        StepCalls("", "Trainer.steps").compiled(SCRIPT, "train.py")


def test_targets() -> None:
    for target in ("train.py:step", "src/train.py:step", "__main__:step", "package.train:step"):
        found = step_end(target, "package.train", "src/train.py")
        assert isinstance(found, StepCalls)
        assert (found.module, found.qualname) == ("", "step")
    other = step_end("package.model:Model.step", "src/train.py", "src/train.py")
    assert isinstance(other, StepCalls)
    assert (other.module, other.qualname) == ("package.model", "Model.step")
    assert step_end("train step", "", "train.py") == "train step"
    assert step_end("step::train", "", "train.py") == "step::train"
    with pytest.raises(UsageError, match=r"other.py is not the script; name its module"):
        step_end("other.py:step", "", "train.py")
