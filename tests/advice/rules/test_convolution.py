"""Rule 26: convolutions with constant shapes whose algorithm the library guesses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules import conv_autotune
from perfkit_core.readers.load import load
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import Op, steps_of, training

KERNEL = "cudnn_volta_scudnn_128x64_relu_small_nn_v1"
GUESSED = '{"Concrete Inputs":["","","[0, 0]","[1, 1]","[1, 1]","1","False","False","True"]}'
TRIED = GUESSED.replace('"1","False"', '"1","True"')
SHAPES = "[[8,3,32,32],[16,3,3,3],[],[],[],[],[],[],[]]"


def convolving(us: int, args: str | None = GUESSED, shapes: tuple[str | None, ...] = (SHAPES, SHAPES)) -> RuleInput:
    """Return a step for each item of ``shapes``, with a convolution and 600 µs of other work."""
    steps = []
    for shape in shapes:
        inner = Op("aten::cudnn_convolution", [(KERNEL, us)], more={"args": args, "shapes": shape})
        steps.append([Op("aten::relu", [("relu", 600)]), Op("aten::conv2d", inner=[inner], more={"shapes": shape})])
    return RuleInput(steps_of(steps, names=torch_name))


def test_a_twentieth_is_saved_by_trying_all_algorithms() -> None:
    facts = convolving(400)  # the step takes 7 + 600 + 400 µs
    (found,) = conv_autotune.find(facts)
    assert found.ceiling_ns == 400_000
    assert predict(facts, found).saving_ns == 20_000
    assert predict(facts, found).p90_ns == facts.step_ns


def test_algorithms_that_were_tried() -> None:
    assert conv_autotune.find(convolving(400, TRIED)) == []


def test_shapes_that_change() -> None:
    assert conv_autotune.find(convolving(400, shapes=(SHAPES, SHAPES.replace("32", "48")))) == []


def test_a_small_share_of_the_work() -> None:
    assert conv_autotune.find(convolving(257)) == []  # 257 of 857 µs are 29.99 %
    assert len(conv_autotune.find(convolving(258))) == 1  # 258 of 858 µs are 30.07 %


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (convolving(400, None), "search"),
        (convolving(400, '{"Concrete Inputs":["","True"]}'), "search"),
        (convolving(400, shapes=(None, None)), "shapes"),
        (convolving(400, shapes=(SHAPES,)), "two steps"),
    ],
)
def test_missing_arguments_shapes_or_steps(facts: RuleInput, why: str) -> None:
    with pytest.raises(NotEvaluableError, match=why):
        conv_autotune.find(facts)


def test_paddle_records_neither_shapes_nor_the_setting() -> None:
    conv = Op("conv2d dygraph", [(KERNEL, 400)])
    with pytest.raises(NotEvaluableError, match="shapes"):
        conv_autotune.find(RuleInput(training(conv, steps=2, names=paddle_name)))


@pytest.mark.parametrize("tried", [False, True])
def test_torch_records_the_setting(tmp_path: Path, tried: bool) -> None:
    """Every recorded convolution shows the setting of the process, whichever backend computes the convolution."""
    from perfkit_torch import trace_handler

    with torch.backends.cudnn.flags(enabled=True, benchmark=tried), torch.profiler.profile(
        record_shapes=True, on_trace_ready=trace_handler(tmp_path)
    ):  # fmt: skip
        torch.nn.functional.conv2d(torch.randn(1, 2, 8, 8), torch.randn(2, 2, 3, 3))
    assert conv_autotune.algorithms_tried(load(tmp_path)) is tried


def test_real_recordings_with_and_without_the_flag(traces: Path) -> None:
    assert conv_autotune.algorithms_tried(load(traces / "torch" / "mi300x-ddp-resnet18-train.json.gz")) is False
    # recorded with the search, but with a version of torch that does not record the setting
    with pytest.raises(NotEvaluableError, match="search"):
        conv_autotune.find(RuleInput(load(traces / "torch" / "pairs" / "resnet50-workers0.json.gz")))
