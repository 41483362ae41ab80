"""``--step-on`` finds the function of a script, and leaves the script otherwise as it is."""

from __future__ import annotations

from types import CodeType
from typing import Any

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.recording.step_calls import StepCalls, step_end, warn_without_steps

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
    with pytest.raises(UsageError, match=r"train.py has no function nope; functions: Trainer.step$"):
        StepCalls("", "nope").compiled(SCRIPT, "train.py")
    with pytest.raises(UsageError, match=r"train.py has no function nope; it defines none: name one of a module"):
        StepCalls("", "nope").compiled(b"x = 1", "train.py")


def test_code_with_a_step_has_the_future_statements_of_the_script_only() -> None:
    calls = StepCalls("", "step")
    names = calls.names()
    exec(calls.compiled(b"def step(x: int): ...", "train.py"), names)
    assert names["step"].__annotations__ == {"x": int}


@pytest.mark.parametrize(
    ("ends", "step_on", "says"),
    [
        (0, None, "no update of an optimizer was seen: --step-on names a function or a range that ends a step"),
        (1, None, "only one update of an optimizer was seen, and the first iteration is not recorded: --step-on names"),
        (0, "my step", "no end of my step (--step-on) was seen"),
        (1, StepCalls("", "step"), "only one end of step (--step-on) was seen, and the first iteration"),
        (4, None, ""),
    ],
)
def test_a_recording_without_steps_says_why(
    ends: int, step_on: StepCalls | str | None, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_without_steps(ends, step_on)
    text = "".join(record.getMessage() for record in caplog.records)
    assert text.startswith(says and f"perfkit: no complete step was found, because {says}")
    assert bool(text) == bool(says)


def test_few_steps_are_said_to_lack_the_first(caplog: pytest.LogCaptureFixture) -> None:
    warn_without_steps(2, None)
    (text,) = caplog.messages
    assert text.startswith("perfkit: the first of only 2 iterations is not recorded: a step lasts from one update of")


def test_a_target_names_a_function_or_a_range() -> None:
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


def test_the_hint_names_a_function_of_the_user_else_the_model_of_a_library(caplog: pytest.LogCaptureFixture) -> None:
    def codes(file: str) -> tuple[CodeType, CodeType]:
        names: dict[str, Any] = {}
        exec(compile("class GPT:\n def forward(self): ...\n def run(self): ...", file, "exec"), names)
        return names["GPT"].run.__code__, names["GPT"].forward.__code__

    run, forward = codes("/lib/site-packages/models/gpt.py")
    library = [("models.gpt", run, 5), ("torch.nn.modules", forward, 9), ("models.gpt", forward, 8)]
    warn_without_steps(0, None, library)
    warn_without_steps(0, None, [*library, ("__main__", codes("/home/user/sample.py")[0], 7)])
    hints = [record.getMessage().partition(". ")[2] for record in caplog.records]
    assert hints == [
        "--step-on models.gpt:GPT.forward may end the steps: it ran at least 8 times",
        "--step-on sample.py:GPT.run may end the steps: it ran at least 7 times",
    ]
