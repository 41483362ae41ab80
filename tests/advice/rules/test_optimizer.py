"""Rules 17 and 18: an optimizer that updates one tensor after the other, and zeros that are written into gradients. The
outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.per_tensor_optimizer import find as per_tensor
from perfkit_core.advice.rules.per_tensor_optimizer import tensors_of
from perfkit_core.advice.rules.zero_fill_gradients import find as zeroed_gradients
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.advised import Rows, call, found, kernel, op, steps, why_not
from tests.support.rule_cases import Cases, check_rule

SPAN = {"torch": "Optimizer.step#AdamW.step", "paddle": "Optimization Step"}


def span(name: str, start: int, dur: int) -> dict[str, Any]:
    return op(name, start, dur, kind="optimizer") | {"phase": "optimizer"}


def loop(framework: str, tensors: int) -> Rows:
    """Return an optimizer of 600 µs for a step of 1000 µs. It calls three operators for each tensor in torch, and one
    in paddle."""
    names = ("aten::mul_", "aten::addcmul_", "aten::addcdiv_") if framework == "torch" else ("adam_ dygraph",)
    every = 600 // (12 * len(names))
    order = [name for _ in range(tensors) for name in names]
    return [span(SPAN[framework], 100, 600), *(op(name, 100 + every * at, every - 2) for at, name in enumerate(order))]


def test_per_tensor_optimizer() -> None:
    """Operators of 16 µs then take 0.69, 0.73 or 0.80 of 600 µs. A single operator per tensor, as in Paddle, then takes
    0.50, 0.58 or 0.72 of 600 µs."""

    def cases(framework: str) -> Cases:
        def case(tensors: int, *more: dict[str, Any]) -> Trace:
            return steps([*loop(framework, tensors), *more], 1000, framework=framework)

        together = ("aten::_foreach_add_", "aten::_fused_adamw_", "merged_adam_ dygraph")
        return {
            "a loop over 12 tensors": case(12),
            "nine tensors with a small share": (case(9), {"foreach_share": 1}),
            "ten tensors with a small share": (case(10), {"foreach_share": 1}),
            "ten tensors, with 11 as the threshold": (case(10), {"foreach_share": 1, "optimizer_tensors": 11}),
            "two tensors, whose update takes 60% of the step": case(2),
            "one tensor, whose update takes 60% of the step": case(1),
            **{f"with {name}": (case(12, op(name, 699, 1)), {"foreach_share": 1}) for name in together},
            "no optimizer": steps([op("aten::mul_", 0, 10)], framework=framework),
        }

    check_rule("per-tensor-optimizer", cases)


def test_operators_of_an_optimizer() -> None:
    """The closure of the optimizer takes 500 of 560 µs, and the update of 12 tensors 60 µs. On a device, 0.03, 0.1 and
    0.3 of the 600 µs on the host remain."""

    def span_of(name: str, dur: int, *rows: dict[str, Any], step: int = 1000) -> Trace:
        return steps([span(f"Optimizer.step#{name}.step", 100, dur), *rows], step)

    def every(us: int, dur: int, count: int, name: str = "aten::add_") -> Rows:
        return [op(name, 100 + us * i, dur) for i in range(count)]

    lists = [f"aten::_foreach_{name}_" for name in ("mul", "add", "addcdiv")]
    foreach = [op(name, 100 + 100 * i, 100) for i, name in enumerate(lists)]
    convolutions = [
        op(name, 100 + 20 * i, 18) for i, name in enumerate(["aten::conv2d", "aten::convolution_backward"] * 12)
    ]
    backward = [row | {"phase": "backward"} for row in convolutions[1::2]]
    clear = [span("Optimizer.zero_grad#SGD.zero_grad", 585, 10), op("aten::zero_", 586, 2)]
    closure = [*convolutions[::2], *backward, *clear, *(op("aten::add_", 600 + 5 * i, 4) for i in range(12))]
    on_device: Rows = [span("Optimizer.step#SGD.step", 0, 600)]
    for i in range(12):
        on_device += [op("aten::add_", 50 * i, 40), call("cudaLaunchKernel", 50 * i + 20, 10, i)]
        on_device += [kernel("add", 50 * i + 30, 5, i)]
    outside = [span(SPAN["torch"], 900, 50), *every(50, 48, 12, "aten::mul_")]
    momentum = [span("Optimization Step", 100, 600), *every(50, 48, 12, "momentum_ dygraph")]
    check_rule("per-tensor-optimizer", {
        "short operators gain more": span_of("SGD", 100, *every(5, 4, 20)),
        "one long operator for each tensor": span_of("SGD", 600, *every(50, 40, 12)),
        "operators on lists read all parameters again and again": span_of("Adam", 300, *foreach),
        "operators on lists that take a tenth of the step": span_of("Adam", 300, *foreach, step=3000),
        "operators on lists of an optimizer that has no fused operator": span_of("RMSprop", 300, *foreach),
        "an optimizer that gains nothing": steps(momentum, 1000, framework="paddle"),
        "operators outside of the optimizer": steps(outside, 1000),
        "a closure is not part of the update": span_of("AdamW", 560, *closure),
        "on a device": steps(on_device, 1000),
    }, "-operators")  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "tensors"),
    [
        ((40,), 40),
        ((80, 40), 40),  # momentum
        ((80, 80, 40), 40),  # Nesterov momentum
        ((80, 40, 20), 40),  # momentum, and weight decay of half of the tensors
        ((80, 36, 40), 40),  # momentum, and weight decay of nine in ten tensors
        ((80, *[40] * 7, 20), 40),  # Adam with weight decay of half of the tensors
        ((80, 76, *[40] * 6), 40),  # AdamW with weight decay of nine in ten tensors
        ((120, 80, 80, 80, 80, 40), 40),  # Adadelta
        ((40, 9, 1, 1, 1), 40),  # operators that are called once for all tensors
        ((40, 10), 10),  # up to four calls per tensor
    ],
)
def test_number_of_tensors_from_calls(calls: tuple[int, ...], tensors: int) -> None:
    assert tensors_of(np.array(calls)) == tensors


def zeroing(gradients: int, passes: int = 1, name: str = "aten::zero_") -> Rows:
    """Return gradients. Filling one of them with zeros takes 10 µs. In each of the ``passes``, a new value is added to
    every gradient, which takes 8 µs."""
    rows = [span("Optimizer.zero_grad#SGD.zero_grad", 100, 400)]
    rows += [op(name, 100 + 12 * i, 10) for i in range(gradients)]
    for i in range(gradients * passes):
        start = 500 + 10 * i
        rows += [op("torch::autograd::AccumulateGrad", start, 9) | {"phase": "backward"}, op("aten::add_", start, 8)]
    return rows


def test_zero_fill_gradients() -> None:
    """Ten fills of 10 µs are spared, and ten additions of 8 µs become 0.5, 0.8 and 1.5 µs. Fills of 11 µs write more
    than 128 KiB, and mapping the memory again may take four times as long."""
    large = [row | ({"dur_ns": 11_000} if "zero" in row["name"] and row["kind"] == "operator" else {})
             for row in zeroing(10)]  # fmt: skip
    other = [row for row in zeroing(12) if row["kind"] != "optimizer"] + [span("Optimizer.zero_grad#", 490, 5)]
    of_paddle = [op("Global_GradNodeAccumulation", 500, 9) | {"phase": "backward"}]
    check_rule("zero-fill-gradients", {
        "ten gradients": steps(zeroing(10), 1000),
        "large gradients may be mapped again in every step": steps(large, 1000),
        "only the first of two passes is spared": steps(zeroing(10, passes=2), 1000),
        "nine gradients": steps(zeroing(9), 1000),
        "no zeros": steps(zeroing(12, name="aten::detach"), 1000),
        "zeros for other reasons": steps(other, 1000),
        "a framework that records no clearing": steps(of_paddle, framework="paddle"),
    })  # fmt: skip


def recorded_torch(
    folder: Path, foreach: bool | None, fused: bool | None, set_to_none: bool, layers: int = 12, bias: bool = True
) -> Trace:
    """Record four steps of a network with ``layers`` layers in torch."""
    import torch

    from perfkit_torch import trace_handler

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16, bias=bias) for _ in range(layers)])
    chosen = torch.optim.AdamW(model.parameters(), foreach=foreach, fused=fused)
    handler = trace_handler(folder)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=handler,
    ) as profiler:
        for _ in range(4):
            chosen.zero_grad(set_to_none=set_to_none)
            model(torch.randn(4, 16)).sum().backward()
            chosen.step()
            profiler.step()
    handler.flush()
    return load(folder)


def test_what_torch_records(tmp_path: Path) -> None:
    facts = RuleInput(recorded_torch(tmp_path / "loop", False, None, False))
    (update,) = per_tensor(facts)
    assert update.evidence["tensors"] == 24  # a weight and a bias for each of 12 layers
    (zeros,) = zeroed_gradients(facts)
    assert zeros.evidence["tensors"] == 24
    assert zeros.evidence["additions"] == 24
    assert len(zeros.rows) == 72


@pytest.mark.parametrize("tensors", [5, 8])
def test_what_torch_records_of_few_tensors(tmp_path: Path, tensors: int) -> None:
    """The optimizer calls some operators twice for each tensor, so 10 and 16 times."""
    recording = recorded_torch(tmp_path, False, None, True, layers=tensors, bias=False)
    assert found(per_tensor, recording, foreach_share=1) == []
    (one,) = found(per_tensor, recording, optimizer_tensors=tensors)
    assert (one.evidence["tensors"], one.evidence["operators_per_tensor"]) == (tensors, 10)


@pytest.mark.parametrize(("foreach", "fused"), [(True, None), (None, True)])
def test_what_torch_records_of_fused_updates(tmp_path: Path, foreach: bool | None, fused: bool | None) -> None:
    facts = RuleInput(recorded_torch(tmp_path, foreach, fused, True))
    # operators on lists read all parameters several times; their share of the time depends on the load of the machine
    assert len(found(per_tensor, facts.trace, foreach_share=0)) == (foreach is True)
    assert found(per_tensor, facts.trace, foreach_share=1) == []
    assert zeroed_gradients(facts) == []


def recorded_paddle(folder: Path, at_once: bool) -> Trace:
    """Record three steps of a network with six layers in paddle."""
    paddle = pytest.importorskip("paddle")
    from perfkit_paddle import trace_handler

    model = paddle.nn.Sequential(*[paddle.nn.Linear(8, 8) for _ in range(6)])
    chosen = paddle.optimizer.Adam(parameters=model.parameters(), use_multi_tensor=at_once)
    handler = trace_handler(folder)
    profiler = paddle.profiler.Profiler(
        targets=[paddle.profiler.ProfilerTarget.CPU], scheduler=(1, 4), on_trace_ready=handler
    )
    profiler.start()
    for _ in range(5):
        model(paddle.ones([2, 8])).sum().backward()
        chosen.step()
        chosen.clear_grad()
        profiler.step()
    profiler.stop()
    handler.flush()
    return load(folder)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_paddle_records(tmp_path: Path, at_once: bool) -> None:
    facts = RuleInput(recorded_paddle(tmp_path, at_once))
    assert [one.evidence["tensors"] for one in per_tensor(facts)] == ([] if at_once else [12])
    assert "calls no operator to clear" in why_not(zeroed_gradients, facts.trace)


def test_a_recorded_training_with_momentum(traces: Path) -> None:
    facts = RuleInput(load(traces / "torch" / "pairs" / "resnet50-workers0.json.gz"))
    (one,) = per_tensor(facts)
    assert one.evidence["tensors"] == 161  # ResNet-50 has 161 parameters
    assert one.evidence["operators_per_tensor"] == 3  # weight decay, momentum and update
    assert len(np.unique(one.rows)) == 6
    (zeros,) = zeroed_gradients(facts)
    assert zeros.evidence["tensors"] == 161
