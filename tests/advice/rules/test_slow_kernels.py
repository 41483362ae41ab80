"""Rule 56: kernels far below the peak rates of their device. A product of 4096 × 4096 matrices in bfloat16 has 137.4
GFLOP, which an A100 (312 TFLOP/s) computes in 440 µs. The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules import slow_kernels
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name
from tests.support.device_steps import A100, Op, training
from tests.support.rule_cases import check_rule

KNOWN = Device("cuda:0", "NVIDIA A100-SXM4-40GB", properties=A100.properties)
HOPPER = Device("cuda:0", "NVIDIA H100 80GB HBM3", properties={"computeMajor": 9})
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(Flash_fwd_params)"


def mm(us: int, size: int = 4096, calls: int = 1, kernel: str = "ampere_bf16_s16816gemm_128x64") -> Op:
    shape = f"[[{size}, {size}], [{size}, {size}]]"
    more = {"shapes": shape, "dtypes": '["c10::BFloat16", "c10::BFloat16"]'}
    return Op("aten::mm", [(kernel, us)] * calls, more=more)


def steps(*ops: Op, on: Device = KNOWN) -> Trace:
    return training(*ops, steps=2, on=on, names=operator_name).with_meta(framework="torch")


def test_slow_kernels() -> None:
    other, attention = Op("aten::relu", [("relu", 700)]), Op("flash", [(FLASH, 300)])
    shapes = {"shapes": "[[1, 4096, 4096], [1, 4096, 4096]]", "dtypes": '["bfloat16", "bfloat16"]'}
    in_paddle = Op("pd_op.bmm", [("ampere_bf16_s16816gemm_128x64", 1500)], more=shapes)
    paddle = training(in_paddle, other, steps=2, on=KNOWN, names=paddle_name)
    check_rule("slow-kernels", {
        "440 of 1500 µs at the peak rate": steps(mm(1500), other),
        "and other shapes of the operator reach 55 of 100 µs": steps(mm(1500), mm(100, 2048), other),
        "two kernels of 750 µs": steps(mm(750, calls=2), other),
        "a program of Paddle": paddle.with_meta(framework="paddle"),
        "440 of 1000 µs": steps(mm(1000), other),
        "the peak rates are not known": steps(mm(1500), other, on=A100),
        "kernels of 19 µs": steps(*[mm(19, 512)] * 60, other),
        "the device is idle for most of the step": steps(mm(1500), Op("wait", [], [Op("host")] * 4000)),
        "attention for an A100 on an H100": steps(attention, other, on=HOPPER),
        "attention for an A100 on an A100": steps(attention, other),
        "an unknown device": steps(attention, other, on=Device("cuda:0", "unknown")),
        "an unknown device that runs kernels of Hopper": steps(
            attention, Op("mm", [("nvjet_tst_192x192", 300)]), other, on=Device("cuda:0", "unknown")
        ),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "major"),
    [
        ("ampere_bf16_s16816gemm_128x64", 8),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n", 8),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", 9),
        ("nvjet_sm103_tst_gemm", 10),
        ("volta_sgemm_128x64_nn", 7),
        (FLASH, 8),
        ("ampere_elementwise", 0),
        ("triton_mm", 0),
        ("cutlass_gemm_sm9", 0),
    ],
)
def test_the_architecture_in_a_name(kernel: str, major: int) -> None:
    assert slow_kernels.architecture(kernel) == major


def test_a_product_of_a_server(traces: Path) -> None:
    """The product of the gate and the first projection in prefill: 15360 × 4096 × 24576 in 6.77 ms is 457 of the 1307
    TFLOP/s of an MI300X."""
    facts = RuleInput(load(traces / "serving" / "sglang-qwen3-8b-prefill-decode.json.gz"))
    (found,) = slow_kernels.find(facts)
    events = facts.trace.to_pandas().loc[found.rows]
    flops = 2 * 15360 * 4096 * 24576 * len(events)
    assert found.evidence["kernels"] == len(events) == 36
    assert found.evidence["reached_ratio"] == pytest.approx(flops / events["dur_ns"].sum() / 1307.4e3, rel=0.001)
