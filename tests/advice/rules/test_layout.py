"""Rule 25: layout conversions that libraries insert, and copies that the model requests. They are separate
candidates. The outcomes are in ``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules.layout_transposes import converting, find, with_launches
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import A100, Op, training
from tests.support.events import device, host, trace
from tests.support.rule_cases import check_rule

CONVOLUTION = "cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4"
CONVERSIONS = (
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>",
    "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>",
    "batched_transpose_32x32_half",
    "void phi::funcs::SwapDim1And2InNarrow<float, 256>(float const*, int)",
    "void phi::funcs::TilingSwapDim1And2<float, 256, 32, 32>",
)  # fmt: skip


def converted(us: int, kernel: str = CONVERSIONS[0]) -> Trace:
    """Return steps with a convolution of 900 µs that converts its input in ``us`` µs."""
    conv = Op("aten::cudnn_convolution", [(kernel, us), (CONVOLUTION, 900)])
    return training(Op("aten::relu", [("relu", 20)]), conv, steps=2, names=torch_name)


def reordered(us: int) -> Trace:
    """Return steps with a product of 900 µs and a copy of ``us`` µs that makes a transposed tensor contiguous."""
    copy = Op("aten::clone", inner=[Op("aten::copy_", [("elementwise_kernel", us)])])
    ops = Op("aten::mm", [("gemm", 900)]), Op("aten::contiguous", inner=[copy])
    return training(*ops, steps=2, names=torch_name)


def transposed(us: int) -> Trace:
    """Return steps with a product of 900 µs and a transpose that copies for ``us`` µs."""
    return training(
        Op("matmul dygraph", [("gemm", 900)]), Op("transpose dygraph", [("permute", us)]), steps=2, names=paddle_name
    )


def test_layout_transposes() -> None:
    """Nine tenths of conversions and three quarters of copies are saved. The step of 100 µs of conversions takes 7 + 20
    + 100 + 900 µs."""
    product = Op("aten::mm", [("gemm", 900)])
    both = (
        Op("aten::cudnn_convolution", [(CONVERSIONS[0], 100), (CONVOLUTION, 800)]),
        Op("aten::contiguous", [("elementwise_kernel", 100)]),
    )
    check_rule("layout-transposes", {
        **{f"a conversion with {kernel[:40]}": converted(100, kernel) for kernel in CONVERSIONS},
        "48 of 968 µs, 4.96%": converted(48),
        "49 of 969 µs, 5.06%": converted(49),
        "another copy before the convolution": converted(100, "void at::native::elementwise_kernel<copy>"),
        "a kernel of a batch norm": converted(100, "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>"),
        "a copy that makes a tensor contiguous": reordered(100),
        "a copy of 47 of 947 µs, 4.96%": reordered(47),
        "a copy of 48 of 948 µs, 5.06%": reordered(48),
        "a transpose that copies in Paddle": transposed(100),
        "47 of 947 µs in Paddle": transposed(47),
        "48 of 948 µs in Paddle": transposed(48),
        "a view": training(product, Op("aten::transpose"), Op("aten::reshape", inner=[Op("aten::view")]),
                           names=torch_name),
        "both kinds": training(*both, names=torch_name),
        "without a device": training(Op("aten::contiguous"), on=A100, names=torch_name),
    })  # fmt: skip


def test_a_call_that_launched_other_work_too_stays() -> None:
    found = trace(
        [
            host("launch one", "runtime", 0, 10, correlation=1),
            host("launch graph", "runtime", 20, 10, correlation=2),
            device(CONVERSIONS[0], "kernel", 50, 10, 1),
            device(CONVERSIONS[1], "kernel", 60, 10, 2),
            device(CONVOLUTION, "kernel", 70, 10, 2),
        ]
    )
    chosen = with_launches(found, converting(found))
    assert found.ints("start_ns")[chosen].tolist() == [50, 60, 0]


def test_conversions_of_a_real_training(traces: Path) -> None:
    """The evidence equals the count and sum of the kernels of this name, computed with pandas."""
    loaded = load(traces / "torch" / "a100-nccl-process-groups.json.gz")
    events = loaded.to_pandas()
    named = events[events["name"].astype(str).str.contains("nchwToNhwc|nhwcToNchw")]
    assert np.array_equal(converting(loaded), named.index.to_numpy())
    (found,) = find(RuleInput(loaded))
    assert found.evidence["kernels"] == len(named) == 633
    assert found.ceiling_ns <= named["dur_ns"].sum() / 3  # three steps
