"""Rules 22 and 23: devices with tensor cores, kernels that do not use tensor cores, and the saving. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.matrix_products import by_peaks, tensor_cores_of
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules import tensor_cores_unused
from perfkit_core.readers.load import load
from perfkit_core.replay.transforms import Quantity
from perfkit_core.trace.model.meta import Device
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import A100, MI300, P100, V100, Op, training
from tests.support.rule_cases import check_rule


def product(kernel: str, us: int = 300, on: Device | None = V100, dtypes: str | None = None) -> Trace:
    """Return steps with a product of ``us`` µs and 700 µs of other work."""
    mm = Op("aten::mm", [(kernel, us)], more={"dtypes": dtypes})
    return training(Op("aten::relu", [("relu", 700)]), mm, steps=2, on=on, names=torch_name)


UNKNOWN = {
    "a device without compute capability": product("volta_sgemm_128x64_nn", on=None),
    "a device of an unknown kind": product("volta_sgemm_128x64_nn", on=Device("xpu:0", "ARTEMIS")),
    "no kernels of products": product("some_kernel"),
    "a product whose kernel does not show its type": product("my_gemm"),
}


def test_tensor_cores_unused() -> None:
    """Half of the 300 µs of products are saved."""
    winograd = "void cudnn::winograd_nonfused::generateWinogradTilesKernel<0>"
    conv = Op("conv2d dygraph", [("maxwell_scudnn_128x128_relu_interior_nn", 300)])
    check_rule("tensor-cores-unused", {
        "products in single precision": product("volta_sgemm_128x64_nn"),
        "products in half precision on ordinary cores": product("volta_hgemm_64x32_nt"),
        "a kernel whose name has no type": product(winograd),
        "a kernel whose operator has a type": product(winograd, dtypes='["float","float"]'),
        "a kernel of Paddle": training(conv, Op("relu dygraph", [("relu", 700)]), on=A100, names=paddle_name),
        "products on tensor cores": product("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"),
        "a P100": product("maxwell_sgemm_128x64_nn", on=P100),
        "products on an MI300's matrix cores": product("Cijk_Alik_Bljk_SB_MT64x16x32_MI16x16x1_SN", on=MI300),
        "37 of 744 µs, 4.97%": product("volta_sgemm_128x64_nn", 37),
        "38 of 745 µs, 5.1%": product("volta_sgemm_128x64_nn", 38),
        **UNKNOWN,
    })  # fmt: skip


def test_tf32_off() -> None:
    """Half of the 300 µs of products are saved, or nothing, because some devices gain nothing."""
    convolution = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_g1_ffma"
    used = Op("aten::mm", [("cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", 10)])
    plain = Op("aten::mm", [("ampere_sgemm_128x64_nn", 300)])
    check_rule("tf32-off", {
        "products on ordinary cores of an A100": product("ampere_sgemm_128x64_nn", on=A100),
        "a V100": product("ampere_sgemm_128x64_nn", on=V100),
        "37 of 744 µs, 4.97%": product("ampere_sgemm_128x64_nn", 37, on=A100),
        "convolutions use TF32 by default": product(convolution, on=A100),
        "another product uses TF32": training(used, plain, names=torch_name),
        **UNKNOWN,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("device", "half", "tf32"),
    [
        (A100, True, True),
        (V100, True, False),
        (P100, False, False),
        (MI300, True, False),
        (Device("cuda:0", "NVIDIA GeForce GTX 1660", None, {"computeMajor": 7, "computeMinor": 5}), False, False),
        (Device("cuda:0", "NVIDIA GeForce RTX 2080 Ti", None, {"computeMajor": 7, "computeMinor": 5}), True, False),
    ],
)
def test_devices(device: Device, half: bool, tf32: bool) -> None:
    units = tensor_cores_of(device)
    assert (units.half, units.tf32) == (half, tf32)


def test_time_of_a_real_training_on_ordinary_cores(traces: Path) -> None:
    """A V100 trains in single precision. The evidence equals a list of all matrix kernels that was made by hand."""
    facts = RuleInput(load(traces / "torch" / "v100-ns-resolution.json.gz"))
    (found,) = tensor_cores_unused.find(facts)
    events = facts.trace.to_pandas()
    words = "sgemm|scudnn|dgrad_engine|dgrad2d|wgrad|winograd|convolve"
    work = events[(events["kind"] == "kernel") & events["name"].astype(str).str.contains(words)]
    assert set(found.rows) <= set(work.index)
    assert work.loc[found.rows, "dur_ns"].sum() > 0.98 * work["dur_ns"].sum()


def test_the_ratio_of_the_peak_rates_limits_the_saving() -> None:
    """An H100 (SXM) has 67 TFLOP/s in single precision on vector units, and 494.7 (TF32) and 989.4 (float16) on tensor
    cores. Of a device without known rates, the estimate of the rule is used."""
    usual = Quantity(0.2, 0.5, 0.9, "usual")
    h100 = Device("cuda:0", "NVIDIA H100 80GB HBM3", properties={"numSms": 132})
    for type_, rate in (("tf32", 494.7), ("float16", 989.4)):
        found = by_peaks([h100], usual, "float32", type_)
        assert found.ends == pytest.approx((67 / rate, (67 / rate * 0.9) ** 0.5, 0.9))
    assert by_peaks([h100, Device("cuda:1", "unknown")], usual, "float32", "tf32") is usual
    assert by_peaks([], usual, "float32", "tf32") is usual
