"""Rule 21: casts are recognised by recorded dtypes, or else by operator names."""

from __future__ import annotations

import pytest
import torch

from perfkit_core.advice.predict import predict
from perfkit_core.advice.rule_input import NotEvaluableError, RuleInput
from perfkit_core.advice.rules.casts import casts, differ, find
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.on_trace_ready import job_rank, take
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import Op, training
from tests.support.events import host, trace

PRODUCT = ("ampere_fp16_s16816gemm_fp16_128x128", 900)


def torch_step(
    cast_us: int, written: str = "c10::BFloat16", kernel: str = "copy", shapes: str = "[[8],[8],[]]"
) -> Trace:
    """Return steps with a product of 900 µs and a cast."""
    more = {"dtypes": f'["{written}","float","Scalar"]', "shapes": shapes}
    copy = Op("aten::copy_", [(kernel, cast_us)], more=more)
    inner = Op("aten::_to_copy", inner=[copy], more={"dtypes": '["float","Scalar"]'})
    cast = Op("aten::to", inner=[inner], more={"dtypes": '["float","Scalar"]'})
    return training(Op("aten::mm", [PRODUCT]), cast, steps=2, names=torch_name)


def paddle_step(cast_us: int) -> Trace:
    """Return the same steps without recorded dtypes; the cast is recognised by its name."""
    cast = Op("cast dygraph", inner=[Op("cast kernel launch", [("cast", cast_us)], kind="operator_detail")])
    return training(Op("matmul dygraph", [PRODUCT]), cast, steps=2, names=paddle_name)


@pytest.mark.parametrize("made", [torch_step, paddle_step])
def test_three_quarters_of_the_casts_are_saved(made) -> None:
    facts = RuleInput(made(100))  # the step takes 7 + 900 + 100 µs
    (found,) = find(facts)
    assert facts.step_ns == 1_007_000
    assert found.evidence["device_ns"] == found.ceiling_ns == 100_000
    assert found.evidence["casts"] == 2
    assert predict(facts, found).saving_ns == 75_000


@pytest.mark.parametrize("made", [torch_step, paddle_step])
def test_a_small_share_of_the_step_does_not_count(made) -> None:
    assert find(RuleInput(made(28))) == []  # 28 of 935 µs are 2.99 %
    assert len(find(RuleInput(made(29)))) == 1  # 29 of 936 µs are 3.1 %


def test_a_copy_of_one_type_is_no_cast() -> None:
    assert find(RuleInput(torch_step(100, written="float"))) == []


def test_a_wrapped_number_is_no_cast() -> None:
    """Optimizers wrap Python numbers as tensors. A change of the network's dtypes does not avoid these conversions."""
    assert find(RuleInput(torch_step(100, shapes="[[],[],[]]"))) == []
    assert len(find(RuleInput(torch_step(100, shapes="[[1],[1],[]]")))) == 1


def test_a_transfer_is_no_cast() -> None:
    assert find(RuleInput(torch_step(100, kernel="Memcpy HtoD (Pageable -> Device)"))) == []


def test_a_transfer_without_types_is_no_cast() -> None:
    def moved(second: str) -> RuleInput:
        cast = Op("aten::to", [("copy", 100), (second, 50)])
        return RuleInput(training(Op("aten::mm", [PRODUCT]), cast, names=torch_name))

    assert len(find(moved("copy"))) == 1
    assert find(moved("Memcpy HtoD (Pageable -> Device)")) == []


def test_loading_of_data_is_left_out() -> None:
    types = {"dtypes": '["float","c10::Half"]'}
    found = trace(
        [
            host("step", "step", 0, 1000, step=0),
            host("next", "dataloader", 0, 500, phase="dataloader"),
            host("aten::copy_", "operator", 10, 400, **types),
            host("aten::copy_", "operator", 600, 10, **types),
        ],
        names=torch_name,
    )
    assert found.ints("start_ns")[casts(found)].tolist() == [600]


def test_on_the_host_the_time_of_the_operators_counts() -> None:
    def steps(name: str, dur: int, names: object) -> RuleInput:
        rows = [host("step", "step", 0, 1_000_000, step=0), host(name, "operator", 5000, dur)]
        return RuleInput(trace(rows, names=names))

    (found,) = find(steps("cast dygraph", 100_000, paddle_name))
    assert found.evidence["host_ns"] == 100_000
    assert find(steps("cast dygraph", 30_000, paddle_name)) == []
    with pytest.raises(NotEvaluableError, match="no dtypes"):
        find(steps("aten::to", 100_000, torch_name))


@pytest.mark.parametrize(
    ("types", "different"),
    [
        ('["c10::BFloat16","float","Bool"]', True),
        ('["float16","float32"]', True),
        ('["double","float"]', True),
        ('["float","float"]', False),
        ('["float","long int","Scalar"]', False),  # labels
        ('["long int","int","Scalar"]', False),  # indices
        ('["float","bool"]', False),
        ('["float","Double"]', False),
        ('["float","Scalar"]', False),
        ('["float","Int","Bool"]', False),
        ('["float",""]', False),
        ('["float"]', False),
    ],
)
def test_types_of_tensors_only(types: str, different: bool) -> None:
    assert differ(types) is different


def test_as_many_as_torch_itself_counts() -> None:
    net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
    with torch.profiler.profile(record_shapes=True) as profiler, torch.autocast("cpu", torch.bfloat16):
        net(torch.randn(8, 64)).float().sum().backward()
    native = {one.key: one.count for one in profiler.key_averages()}
    assert len(casts(take(profiler, job_rank()).finish())) == native["aten::_to_copy"] > 6
