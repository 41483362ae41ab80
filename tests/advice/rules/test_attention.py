"""Rule 27: unfused attention in both frameworks, and operators that do not belong to it."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch

from perfkit_core.advice.engine import advise
from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.unfused_attention import chain_rows, find
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.on_trace_ready import job_rank, take
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.advised import found, op, predicted, steps
from tests.support.device_steps import Op, training

REST = ("other", 900)


def torch_step(us: int, between: str = "aten::dropout", **softmax: str) -> Trace:
    """Return steps with 900 µs of other work and three attention kernels that take ``us`` µs in total."""
    return training(
        Op("aten::gelu", [REST]),
        Op("aten::matmul", inner=[Op("aten::bmm", [("scores", us // 2)])]),
        Op("aten::div"),
        Op("aten::softmax", [("softmax", us - us // 2 - 1)], more=softmax),
        Op(between),
        Op("aten::matmul", [("context", 1)]),
        steps=2,
        names=torch_name,
    )


def paddle_step(us: int, between: str = "dropout dygraph", **softmax: str) -> Trace:
    """Return the same steps with the operator names of Paddle."""
    return training(
        Op("gelu dygraph", [REST]),
        Op("matmul dygraph", inner=[Op("matmul kernel launch", [("scores", us // 2)], kind="operator_detail")]),
        Op("scale dygraph"),
        Op("softmax dygraph", [("softmax", us - us // 2 - 1)], more=softmax),
        Op(between),
        Op("matmul dygraph", [("context", 1)]),
        steps=2,
        names=paddle_name,
    )


@pytest.mark.parametrize("made", [torch_step, paddle_step])
def test_three_fifths_of_the_chain_are_saved(made) -> None:
    facts = RuleInput(made(100))  # the step takes 7 + 100 + 900 µs
    (one,) = find(facts)
    assert facts.step_ns == 1_007_000
    assert one.evidence["chains"] == 2
    assert one.ceiling_ns == 100_000
    assert predict(facts, one).saving_ns == 60_000


@pytest.mark.parametrize("made", [torch_step, paddle_step])
def test_a_small_share_of_the_step_does_not_count(made) -> None:
    assert find(RuleInput(made(18))) == []  # 18 of 925 µs are 1.95 %
    assert len(find(RuleInput(made(19)))) == 1  # 19 of 926 µs are 2.05 %


@pytest.mark.parametrize(("made", "other"), [(torch_step, "aten::topk"), (paddle_step, "topk dygraph")])
def test_other_operators_between_the_products_break_a_chain(made, other: str) -> None:
    assert find(RuleInput(made(100, other))) == []


def test_scores_have_a_batch() -> None:
    assert len(find(RuleInput(torch_step(100, shapes="[[8, 16, 16],[],[]]")))) == 1
    assert find(RuleInput(torch_step(100, shapes="[[8, 16],[],[]]"))) == []


def test_products_with_weights_are_no_attention() -> None:
    ops = Op("aten::linear", [("a", 100)]), Op("aten::softmax", [("b", 100)]), Op("aten::linear", [("c", 100)])
    assert find(RuleInput(training(*ops, names=torch_name))) == []


def test_fused_attention_is_no_chain() -> None:
    ops = Op("aten::matmul", [("a", 100)]), Op("aten::scaled_dot_product_attention", [("b", 100)]), Op("aten::matmul")
    assert find(RuleInput(training(*ops, names=torch_name))) == []


def test_the_backward_pass_of_the_chain_counts() -> None:
    def backward(name: str, sequence: int) -> Op:
        return Op(name, [("gradient", 50)], more={"sequence": sequence, "phase": "backward"})

    facts = RuleInput(
        training(
            Op("aten::gelu", [REST], more={"sequence": 4}),
            Op("aten::matmul", [("scores", 20)], more={"sequence": 1}),
            Op("aten::softmax", [("softmax", 20)], more={"sequence": 2}),
            Op("aten::matmul", [("context", 10)], more={"sequence": 3}),
            backward("GeluBackward0", 4),
            backward("BmmBackward0", 3),
            backward("SoftmaxBackward0", 2),
            names=torch_name,
        )
    )
    (one,) = find(facts)
    assert one.ceiling_ns == 50_000 + 2 * 50_000
    assert predict(facts, one).saving_ns == 90_000


def test_a_backward_pass_without_links_is_left_out() -> None:
    backward = Op("BmmBackward0", [("gradient", 50)], more={"phase": "backward"})
    chain = [Op("aten::matmul", [("a", 50)]), Op("aten::softmax", [("b", 50)]), Op("aten::matmul", [("c", 50)])]
    (one,) = find(RuleInput(training(*chain, backward, names=torch_name)))
    assert one.ceiling_ns == 150_000


def on_host(*names: str, backward: bool = True) -> Trace:
    """Return steps with operators of 20 µs on the host, and the gradient of the first one, 40 µs."""
    rows = [op(name, 20 * at, 20) | {"sequence": at} for at, name in enumerate(names)]
    gradient = "autograd::engine::evaluate_function: BmmBackward0"
    rows += [op(gradient, 200, 40) | {"phase": "backward", "sequence": 0}] if backward else []
    return steps(rows, 400)


def test_attention_on_a_host() -> None:
    recording = on_host("aten::matmul", "aten::div", "aten::softmax", "aten::matmul")
    (one,) = found(find, recording)
    assert one.evidence["attention_ns"] == 120_000
    assert predicted(recording, one) == (316_000, 340_000, 394_000)
    assert one.needs_remedy  # Paddle has no fused kernel for hosts


def test_other_operators_on_a_host_are_no_attention() -> None:
    assert found(find, on_host("aten::softmax")) == []
    assert found(find, on_host("aten::matmul", "aten::relu", "aten::softmax", "aten::matmul")) == []


def test_fused_attention_on_a_host_has_a_remedy_in_torch_only() -> None:
    recording = on_host("aten::matmul", "aten::div", "aten::softmax", "aten::matmul")
    counts = [len(advise(recording.with_meta(framework=name), rules=["unfused-attention"], outcomes=[]).advice)
              for name in ("torch", "paddle")]  # fmt: skip
    assert counts == [1, 0]


def test_attention_written_out_in_torch() -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(x @ x.transpose(-2, -1) / math.sqrt(8), -1)
        return torch.dropout(weights, 0.1, True) @ x

    x, layer = torch.randn(2, 4, 16, 8), torch.nn.Linear(8, 8)
    with torch.profiler.profile(record_shapes=True) as profiler:
        for _ in range(3):
            attention(layer(x))
        torch.nn.functional.scaled_dot_product_attention(x, x, x)
        layer(torch.softmax(layer(x), -1))
    assert chain_rows(take(profiler, job_rank()).finish())[1] == 3


def test_attention_written_out_in_paddle(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paddle = pytest.importorskip("paddle")
    from perfkit_paddle import trace_handler

    x, layer = paddle.randn([2, 4, 16, 8]), paddle.nn.Linear(8, 8)
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], on_trace_ready=trace_handler(tmp_path)
    )
    with profiler:
        for _ in range(3):
            weights = paddle.nn.functional.softmax(paddle.matmul(x, x, transpose_y=True) / math.sqrt(8))
            paddle.matmul(paddle.nn.functional.dropout(weights, 0.1), x)
        layer(paddle.nn.functional.softmax(layer(x)))
    del profiler
    assert chain_rows(load(tmp_path))[1] == 3
