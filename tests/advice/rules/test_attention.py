"""Rule 27: unfused attention in both frameworks, and operators that do not belong to it. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch

from perfkit_core.advice.engine import advise
from perfkit_core.advice.rules.unfused_attention import chain_rows
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.on_trace_ready import job_rank, take
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.advised import op, steps
from tests.support.device_steps import Op, training
from tests.support.rule_cases import check_rule

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


def on_host(*names: str, backward: bool = True) -> Trace:
    """Return steps with operators of 20 µs on the host, and the gradient of the first one, 40 µs."""
    rows = [op(name, 20 * at, 20) | {"sequence": at} for at, name in enumerate(names)]
    gradient = "autograd::engine::evaluate_function: BmmBackward0"
    rows += [op(gradient, 200, 40) | {"phase": "backward", "sequence": 0}] if backward else []
    return steps(rows, 400)


def backward(name: str, sequence: int | None = None) -> Op:
    link = {} if sequence is None else {"sequence": sequence}
    return Op(name, [("gradient", 50)], more={"phase": "backward", **link})


def test_unfused_attention() -> None:
    """Three fifths of the chain are saved. The step of a chain of 100 µs takes 7 + 100 + 900 µs."""
    chain = [
        Op("aten::matmul", [("scores", 20)], more={"sequence": 1}),
        Op("aten::softmax", [("softmax", 20)], more={"sequence": 2}),
        Op("aten::matmul", [("context", 10)], more={"sequence": 3}),
    ]
    gradients = backward("GeluBackward0", 4), backward("BmmBackward0", 3), backward("SoftmaxBackward0", 2)
    weights = Op("aten::linear", [("a", 100)]), Op("aten::softmax", [("b", 100)]), Op("aten::linear", [("c", 100)])
    fused = Op("aten::matmul", [("a", 100)]), Op("aten::scaled_dot_product_attention", [("b", 100)])
    check_rule("unfused-attention", {
        "a chain of 100 µs in torch": torch_step(100),
        "a chain of 100 µs in Paddle": paddle_step(100),
        "18 of 925 µs, 1.95%": torch_step(18),
        "19 of 926 µs, 2.05%": torch_step(19),
        "18 of 925 µs in Paddle": paddle_step(18),
        "19 of 926 µs in Paddle": paddle_step(19),
        "another operator between the products": torch_step(100, "aten::topk"),
        "another operator between the products in Paddle": paddle_step(100, "topk dygraph"),
        "scores with a batch": torch_step(100, shapes="[[8, 16, 16],[],[]]"),
        "scores without a batch": torch_step(100, shapes="[[8, 16],[],[]]"),
        "products with weights": training(*weights, names=torch_name),
        "fused attention": training(*fused, Op("aten::matmul"), names=torch_name),
        "the backward pass of the chain, and of another operator": training(
            Op("aten::gelu", [REST], more={"sequence": 4}), *chain, *gradients, names=torch_name),
        "a backward pass without links": training(*chain, backward("BmmBackward0"), names=torch_name),
        "on a host; Paddle has no fused kernel for hosts": on_host(
            "aten::matmul", "aten::div", "aten::softmax", "aten::matmul"),
        "a softmax on a host": on_host("aten::softmax"),
        "another operator between the products on a host": on_host(
            "aten::matmul", "aten::relu", "aten::softmax", "aten::matmul"),
    })  # fmt: skip


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
