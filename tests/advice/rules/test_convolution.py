"""Rule 26: convolutions with constant shapes whose algorithm the library guesses. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules import conv_autotune
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import Op, steps_of, training
from tests.support.rule_cases import check_rule

KERNEL = "cudnn_volta_scudnn_128x64_relu_small_nn_v1"
GUESSED = '{"Concrete Inputs":["","","[0, 0]","[1, 1]","[1, 1]","1","False","False","True"]}'
TRIED = GUESSED.replace('"1","False"', '"1","True"')
SHAPES = "[[8,3,32,32],[16,3,3,3],[],[],[],[],[],[],[]]"


def convolving(us: int, args: str | None = GUESSED, shapes: tuple[str | None, ...] = (SHAPES, SHAPES)) -> Trace:
    """Return a step for each item of ``shapes``, with a convolution and 600 µs of other work."""
    steps = []
    for shape in shapes:
        inner = Op("aten::cudnn_convolution", [(KERNEL, us)], more={"args": args, "shapes": shape})
        steps.append([Op("aten::relu", [("relu", 600)]), Op("aten::conv2d", inner=[inner], more={"shapes": shape})])
    return steps_of(steps, names=torch_name)


def test_conv_autotune() -> None:
    """A twentieth of the convolution is saved, or nothing. The step takes 7 + 600 + 400 µs. Paddle records neither
    shapes nor the setting."""
    conv = Op("conv2d dygraph", [(KERNEL, 400)])
    check_rule("conv-autotune", {
        "a guessed algorithm": convolving(400),
        "algorithms that were tried": convolving(400, TRIED),
        "shapes that change": convolving(400, shapes=(SHAPES, SHAPES.replace("32", "48"))),
        "257 of 857 µs, 29.99%": convolving(257),
        "258 of 858 µs, 30.07%": convolving(258),
        "without arguments": convolving(400, None),
        "with the arguments of another operator": convolving(400, '{"Concrete Inputs":["","True"]}'),
        "without shapes": convolving(400, shapes=(None, None)),
        "one step": convolving(400, shapes=(SHAPES,)),
        "Paddle": training(conv, steps=2, names=paddle_name),
    })  # fmt: skip


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
