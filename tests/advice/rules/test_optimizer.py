"""Rules 17 and 18: an optimizer that updates one tensor after the other, and zeros that are written into gradients."""

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
from tests.support.advised import BOTH, Rows, call, found, kernel, op, predicted, steps, why_not

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


@pytest.mark.parametrize(
    ("framework", "p10", "p50", "p90"),
    [
        ("torch", 400 + 414, 400 + 438, 400 + 480),  # operators of 16 µs then take 0.69, 0.73 or 0.80 of 600 µs
        # a single operator per tensor then takes 0.50, 0.58 or 0.72 of 600 µs
        ("paddle", 400 + 300, 400 + 348, 400 + 432),
    ],
)
def test_a_loop_over_tensors(framework: str, p10: int, p50: int, p90: int) -> None:
    recording = steps(loop(framework, 12), 1000, framework=framework)
    (one,) = found(per_tensor, recording)
    assert one.evidence["tensors"] == 12
    assert one.evidence["operators_per_tensor"] == (3 if framework == "torch" else 1)
    assert one.ceiling_ns == 600_000
    assert predicted(recording, one) == (p10 * 1000, p50 * 1000, p90 * 1000)


def test_short_operators_gain_more() -> None:
    rows = [span("Optimizer.step#SGD.step", 100, 100), *(op("aten::add_", 100 + 5 * i, 4) for i in range(20))]
    recording = steps(rows, 1000)
    (one,) = found(per_tensor, recording)
    assert predicted(recording, one) == (
        900_000 + 38_000,
        900_000 + 50_000,
        900_000 + 79_000,
    )  # one operator per tensor


def test_long_operators_one_for_each_tensor_gain_nothing() -> None:
    rows = [span("Optimizer.step#SGD.step", 100, 600), *(op("aten::add_", 100 + 50 * i, 40) for i in range(12))]
    assert found(per_tensor, steps(rows, 1000)) == []


@BOTH
def test_few_tensors_do_not_count(framework: str) -> None:
    nine, ten = (steps(loop(framework, count), 1000, framework=framework) for count in (9, 10))
    assert found(per_tensor, nine, foreach_share=1) == []
    assert len(found(per_tensor, ten, foreach_share=1)) == 1
    assert found(per_tensor, ten, optimizer_tensors=11, foreach_share=1) == []


@BOTH
def test_few_tensors_count_if_their_update_takes_long(framework: str) -> None:
    """The update takes 60 % of the step."""
    two, one = (steps(loop(framework, count), 1000, framework=framework) for count in (2, 1))
    assert len(found(per_tensor, two)) == 1
    assert found(per_tensor, one) == []


def test_operators_on_lists_of_tensors_read_all_parameters_again_and_again() -> None:
    names = ("aten::_foreach_mul_", "aten::_foreach_add_", "aten::_foreach_addcdiv_")
    rows = [span("Optimizer.step#Adam.step", 100, 300), *(op(name, 100 + 100 * i, 100) for i, name in enumerate(names))]
    recording = steps(rows, 1000)
    (update,) = found(per_tensor, recording)
    assert update.evidence["optimizer_ns"] == 300_000
    assert predicted(recording, update) == (775_000, 835_000, 970_000)
    assert found(per_tensor, steps(rows, 3000)) == []  # a tenth of the step
    other = [span("Optimizer.step#RMSprop.step", 100, 300), *rows[1:]]
    assert found(per_tensor, steps(other, 1000)) == []  # it has no fused operator


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


@BOTH
@pytest.mark.parametrize("name", ["aten::_foreach_add_", "aten::_fused_adamw_", "merged_adam_ dygraph"])
def test_tensors_that_are_updated_together(framework: str, name: str) -> None:
    rows = [*loop(framework, 12), op(name, 699, 1)]
    assert found(per_tensor, steps(rows, 1000, framework=framework), foreach_share=1) == []


def test_an_optimizer_that_gains_nothing() -> None:
    rows = [span("Optimization Step", 100, 600), *(op("momentum_ dygraph", 100 + 50 * i, 48) for i in range(12))]
    assert found(per_tensor, steps(rows, 1000, framework="paddle")) == []


def test_operators_outside_the_optimizer_do_not_count() -> None:
    rows = [span(SPAN["torch"], 900, 50), *(op("aten::mul_", 100 + 50 * i, 48) for i in range(12))]
    assert found(per_tensor, steps(rows, 1000)) == []


def test_a_closure_is_not_part_of_the_update() -> None:
    """The optimizer calls a closure: 500 of 560 µs are forward and backward pass, 60 µs are the update of 12
    tensors."""
    names = ("aten::conv2d", "aten::convolution_backward")
    closure = [op(name, 100 + 20 * i, 18) for i, name in enumerate(names * 12)]
    backward = [row | {"phase": "backward"} for row in closure[1::2]]
    update = [op("aten::add_", 600 + 5 * i, 4) for i in range(12)]
    clear = [span("Optimizer.zero_grad#SGD.zero_grad", 585, 10), op("aten::zero_", 586, 2)]
    (one,) = found(per_tensor, steps([span(SPAN["torch"], 100, 560), *closure[::2], *backward, *clear, *update], 1000))
    assert one.evidence["tensors"] == 12
    assert one.evidence["operators_per_tensor"] == 1
    assert one.evidence["optimizer_ns"] == 12 * 4_000
    assert one.ceiling_ns == 12 * 4_000


def test_on_a_device_launches_and_kernels_become_few() -> None:
    rows: Rows = [span("Optimizer.step#SGD.step", 0, 600)]
    for i in range(12):
        rows += [
            op("aten::add_", 50 * i, 40),
            call("cudaLaunchKernel", 50 * i + 20, 10, i),
            kernel("add", 50 * i + 30, 5, i),
        ]
    recording = steps(rows, 1000)
    (one,) = found(per_tensor, recording)
    assert predicted(recording, one) == (418_000, 460_000, 580_000)  # 0.03, 0.1 and 0.3 of the 600 µs on the host
    assert one.ceiling_ns == 660_000


def test_without_an_optimizer() -> None:
    assert "optimizer" in why_not(per_tensor, steps([op("aten::mul_", 0, 10)]))


def zeroing(gradients: int, passes: int = 1, name: str = "aten::zero_") -> Rows:
    """Return gradients. Filling one of them with zeros takes 10 µs. In each of the ``passes``, a new value is added to
    every gradient, which takes 8 µs."""
    rows = [span("Optimizer.zero_grad#SGD.zero_grad", 100, 400)]
    rows += [op(name, 100 + 12 * i, 10) for i in range(gradients)]
    for i in range(gradients * passes):
        start = 500 + 10 * i
        rows += [op("torch::autograd::AccumulateGrad", start, 9) | {"phase": "backward"}, op("aten::add_", start, 8)]
    return rows


def test_zeros_are_spared_and_additions_become_cheap() -> None:
    recording = steps(zeroing(10), 1000)
    (one,) = found(zeroed_gradients, recording)
    assert one.evidence["tensors"] == one.evidence["additions"] == 10
    # without ten fills of 10 µs; ten additions of 8 µs become 0.5, 0.8 and 1.5 µs
    assert predicted(recording, one) == (1_000_000 - 100_000 - 75_000, 1_000_000 - 172_000, 1_000_000 - 165_000)


def test_large_gradients_may_be_mapped_again_in_every_step() -> None:
    """Fills of 11 µs write more than 128 KiB. Mapping the memory again takes four times as long."""
    rows = [row | ({"dur_ns": 11_000} if "zero" in row["name"] and row["kind"] == "operator" else {})
            for row in zeroing(10)]  # fmt: skip
    less, more = (steps(part, 1000) for part in (zeroing(10), rows))
    (small,), (large,) = found(zeroed_gradients, less), found(zeroed_gradients, more)
    assert len(large.risks) == len(small.risks) + 1
    assert (predicted(more, large)[2] or 0) >= 1_000_000 - 175_000 + 440_000 - 10_000


def test_only_the_first_of_several_passes_is_spared() -> None:
    recording = steps(zeroing(10, passes=2), 1000)
    (one,) = found(zeroed_gradients, recording)
    assert predicted(recording, one)[1] == 1_000_000 - 100_000 - 72_000


def test_few_gradients_do_not_count() -> None:
    assert found(zeroed_gradients, steps(zeroing(9), 1000)) == []
    assert found(zeroed_gradients, steps(zeroing(12, name="aten::detach"), 1000)) == []


def test_zeros_for_other_reasons() -> None:
    rows = [row for row in zeroing(12) if row["kind"] != "optimizer"] + [span("Optimizer.zero_grad#", 490, 5)]
    assert found(zeroed_gradients, steps(rows, 1000)) == []


def test_a_framework_that_records_no_clearing() -> None:
    rows = [op("Global_GradNodeAccumulation", 500, 9) | {"phase": "backward"}]
    assert "calls no operator to clear" in why_not(zeroed_gradients, steps(rows, framework="paddle"))


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
