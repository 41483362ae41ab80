"""Rule 21: casts are recognised by recorded dtypes, or else by operator names. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

import pytest
import torch

from perfkit_core.advice.rules.casts import casts, differ
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.on_trace_ready import job_rank, take
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import Op, training
from tests.support.events import host, trace
from tests.support.rule_cases import check_rule

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


def on_host(name: str, dur: int) -> Trace:
    """Return a step of 1 ms with an operator that takes ``dur`` ns."""
    names = paddle_name if name.endswith("dygraph") else torch_name
    return trace([host("step", "step", 0, 1_000_000, step=0), host(name, "operator", 5000, dur)], names=names)


def moved(second: str) -> Trace:
    """Return a step with a cast without types that launches a copy kernel and other work."""
    cast = Op("aten::to", [("copy", 100), (second, 50)])
    return training(Op("aten::mm", [PRODUCT]), cast, names=torch_name)


def test_casts() -> None:
    """Three quarters of the casts are saved. Optimizers wrap Python numbers as tensors, which no dtype of the network
    avoids."""
    transfer = "Memcpy HtoD (Pageable -> Device)"
    check_rule("casts", {
        "a cast of 100 of 1007 µs in torch": torch_step(100),
        "a cast of 100 of 1007 µs in Paddle, without dtypes": paddle_step(100),
        "28 of 935 µs, 2.99%": torch_step(28),
        "29 of 936 µs, 3.1%": torch_step(29),
        "28 of 935 µs in Paddle": paddle_step(28),
        "29 of 936 µs in Paddle": paddle_step(29),
        "a copy of one type": torch_step(100, written="float"),
        "a wrapped number": torch_step(100, shapes="[[],[],[]]"),
        "a tensor of one element": torch_step(100, shapes="[[1],[1],[]]"),
        "a transfer": torch_step(100, kernel=transfer),
        "a copy without types": moved("copy"),
        "a transfer without types": moved(transfer),
        "100 of 1000 µs on the host": on_host("cast dygraph", 100_000),
        "30 of 1000 µs on the host": on_host("cast dygraph", 30_000),
        "without dtypes on the host": on_host("aten::to", 100_000),
    })  # fmt: skip


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
