"""Rule 28: biases of convolutions that a batch norm subtracts, added inside or after the convolution. The
outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules import conv_bias_before_norm
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import Op, training
from tests.support.rule_cases import check_rule

KERNEL = "cudnn_volta_scudnn_128x64_relu_small_nn_v1"


def biased(bias: str = "[16]", behind: str = "aten::batch_norm", channels: int = 16, us: int = 50) -> Trace:
    """Return a convolution of 900 µs that adds its bias in ``us`` µs, the operator after it, and the sum of the bias
    gradient."""
    inner = Op(
        "aten::_convolution", inner=[Op("aten::cudnn_convolution", [(KERNEL, 900)]), Op("aten::add_", [("b", us)])]
    )
    return training(
        Op("aten::conv2d", inner=[inner], more={"shapes": f"[[8,3,32,32],[16,3,3,3],{bias}]", "sequence": 5}),
        Op(behind, [("n", 20)], more={"shapes": f"[[8,{channels},30,30],[{channels}],[{channels}]]"}),
        Op(
            "autograd::engine::evaluate_function: ConvolutionBackward0",
            inner=[Op("aten::convolution_backward", inner=[Op("aten::sum", [("s", us)])])],
            more={"sequence": 5, "phase": "backward"},
        ),
        steps=2,
        names=torch_name,
    )  # fmt: skip


def layers(*behind: Op, inside: tuple[Op, ...] = (Op("reshape dygraph"), Op("add dygraph", [("b", 50)]))) -> Trace:
    """Return the call of a convolution layer that adds its bias with a separate operator."""
    conv = Op("Conv2D", inner=[Op("conv2d dygraph", [(KERNEL, 900)]), *inside], kind="forward")
    return training(conv, *behind, steps=2, names=paddle_name)


NORM = Op("BatchNorm2D", inner=[Op("batch_norm dygraph", [("n", 20)])], kind="forward")


def test_conv_bias_before_norm() -> None:
    """The bias and the sum of its gradient take 50 µs each, of 7 + 10 + 900 + 50 + 20 + 50 µs."""
    add = Op("add dygraph", [("b", 50)])
    check_rule("conv-bias-before-norm", {
        "a bias inside the convolution": biased(),
        "no bias": biased(bias="[]"),
        "no batch norm": biased(behind="aten::relu"),
        "a batch norm of other channels": biased(channels=32),
        "4 of 941 µs, 0.43%": biased(us=2),
        "6 of 943 µs, 0.64%": biased(us=3),
        "a bias that is an operator of the layer": layers(NORM),
        "another layer before the batch norm": layers(Op("relu dygraph"), NORM),
        "a shortcut that is added outside of the layer": layers(add, NORM, inside=()),
        "two additions in the layer": layers(NORM, inside=(add, add)),
        "no layer after the convolution": layers(),
        "without operators": training(Op("range", [(KERNEL, 9)], kind="annotation")),
    })  # fmt: skip


def test_shapes_without_bias_or_weights() -> None:
    assert conv_bias_before_norm.bias_channels([[8, 3, 32, 32], [16, 3, 3, 3]]) == 0
    assert conv_bias_before_norm.bias_channels([[8, 3, 32, 32], [16, 3, 3, 3], []]) == 0
    assert (
        conv_bias_before_norm.channels_of([[8, 16, 30, 30], []]) == 16
    )  # a batch norm without weights: the second dimension counts
    assert conv_bias_before_norm.channels_of([[8, 16, 30, 30]]) == 16
    assert conv_bias_before_norm.channels_of([[]]) == -1


@pytest.mark.filterwarnings("ignore:When training:UserWarning")
@pytest.mark.parametrize("bias", [True, False])
def test_a_paddle_network_with_and_without_bias(tmp_path: Path, bias: bool) -> None:
    """The time of the bias is the time of the operators that Paddle does not run without a bias."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paddle = pytest.importorskip("paddle")
    from perfkit_paddle import trace_handler

    options = {} if bias else {"bias_attr": False}
    net = paddle.nn.Sequential(paddle.nn.Conv2D(3, 8, 3, **options), paddle.nn.BatchNorm2D(8), paddle.nn.ReLU())
    x = paddle.randn([4, 3, 16, 16])
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=trace_handler(tmp_path)
    )
    with profiler:
        for _ in range(3):
            net(x)
            profiler.step()
    del profiler
    trace = load(tmp_path)
    adds = np.flatnonzero(trace.rows("name", "add dygraph"))
    assert len(adds) == (3 if bias else 0)
    found = conv_bias_before_norm.find(RuleInput(trace))
    assert [one.evidence["convolutions"] for one in found] == ([3] if bias else [])
    assert not bias or set(adds) < set(found[0].rows)
