"""Rules 22, 23 and 24: what names of kernels tell, on which devices it counts, and what the kernels save."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_steps import A100, MI300, P100, V100, Op, training

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import NotEvaluableError
from perfkit_core.advice.predict import predict
from perfkit_core.advice.rules import alignment, kernel_words, tensor_cores
from perfkit_core.advice.rules.kernel_words import HALF, OTHER, PLAIN, SINGLE, TENSOR, UNKNOWN
from perfkit_core.advice.rules.matrix_units import of_device
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.loading import load
from perfkit_core.trace import Device, Trace
from perfkit_paddle.operators import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name

NAMES = {
    "volta_sgemm_128x64_nn": (SINGLE, PLAIN),
    "ampere_sgemm_32x32_sliced1x4_tn": (SINGLE, PLAIN),
    "cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>": (SINGLE, PLAIN),
    "volta_hgemm_64x32_nt": (HALF, PLAIN),
    "volta_fp16_scudnn_fp16_128x64_relu_interior_nn_v1": (HALF, PLAIN),
    "maxwell_scudnn_128x128_relu_interior_nn": (SINGLE, PLAIN),
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)": (SINGLE, PLAIN),
    "void implicit_convolve_sgemm<__half, __half, 1024, 5, 5>(int)": (HALF, PLAIN),
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize128x128x8_g1_ffma_t1": (SINGLE, PLAIN),
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_g1_tensor16x8x8": (SINGLE, TENSOR),
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": (HALF, TENSOR),
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn": (HALF, TENSOR),
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn": (HALF, TENSOR),
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>": (SINGLE, TENSOR),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1": (HALF, TENSOR),
    "nvjet_tst_192x8_64x8_4x1_v_bz_TNT": (UNKNOWN, TENSOR),
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1_SN": (HALF, TENSOR),
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN": (SINGLE, TENSOR),
    "Cijk_Ailk_Bljk_HHS_BH_MT64x64x16_SE_1LDSB0_TT4_4_WG16_16_1": (HALF, PLAIN),
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x16": (HALF, TENSOR),
    "ampere_dgemm_64x64_nn": (OTHER, UNKNOWN),
    "ampere_gcgemm_64x64_nt": (OTHER, UNKNOWN),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_what_a_name_tells(name: str) -> None:
    assert kernel_words.multiplies(name.lower())
    assert (kernel_words.number_type(name.lower()), kernel_words.unit(name.lower())) == NAMES[name]


@pytest.mark.parametrize(
    "name",
    [
        "void gemv2T_kernel_val<int, int, float>",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>",
        "void pytorch_flash::flash_fwd_kernel<cutlass::bfloat16_t>",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>",
        "void cudnn::cnn::conv2d_grouped_direct_kernel<float>",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3>",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>",
        "void at::native::vectorized_elementwise_kernel<4, convert>",
        "void moe::finalizeKernelVecLoad<KernelParams<cutlass::bfloat16_t>>",
    ],
)
def test_what_multiplies_no_matrices(name: str) -> None:
    assert not kernel_words.multiplies(name.lower())


@pytest.mark.parametrize(
    ("dtypes", "type_"),
    [
        ('["c10::Half","c10::Half"]', HALF),
        ('["GenericList","float","float","Int"]', SINGLE),
        ('["float32","float32"]', SINGLE),
        ('["c10::BFloat16","float"]', OTHER),
        ('["double","double"]', OTHER),
        ('["float"]', UNKNOWN),
    ],
)
def test_types_of_the_operator(dtypes: str, type_: int) -> None:
    assert kernel_words.type_of_inputs(dtypes) == type_


def product(kernel: str, us: int = 300, on: Device | None = V100, dtypes: str | None = None) -> Trace:
    """A product, and 700 µs of something else."""
    mm = Op("aten::mm", [(kernel, us)], more={"dtypes": dtypes})
    return training(Op("aten::relu", [("relu", 700)]), mm, steps=2, on=on, names=torch_name)


def test_half_of_single_precision_products_is_saved_by_mixed_precision() -> None:
    facts = Facts(product("volta_sgemm_128x64_nn"))
    (found,) = tensor_cores.unused(facts)
    assert facts.step_ns == 1_007_000
    assert found.evidence["kernel_ns"] == found.ceiling_ns == 300_000
    assert predict(facts, found).saving_ns == 150_000


def test_half_precision_on_ordinary_cores() -> None:
    facts = Facts(product("volta_hgemm_64x32_nt"))
    (found,) = tensor_cores.unused(facts)
    assert found.conflicts == ("unaligned-matmul",)
    assert predict(facts, found).saving_ns == 150_000


def test_the_operator_knows_the_type_that_a_name_hides() -> None:
    name = "void cudnn::winograd_nonfused::generateWinogradTilesKernel<0>"
    assert tensor_cores.unused(Facts(product(name))) == []
    assert len(tensor_cores.unused(Facts(product(name, dtypes='["float","float"]')))) == 1


def test_kernels_of_paddle_alike() -> None:
    conv = Op("conv2d dygraph", [("maxwell_scudnn_128x128_relu_interior_nn", 300)])
    facts = Facts(training(conv, Op("relu dygraph", [("relu", 700)]), on=A100, names=paddle_name))
    (found,) = tensor_cores.unused(facts)
    assert predict(facts, found).saving_ns == 150_000


def test_products_on_tensor_cores_and_devices_without_them() -> None:
    assert tensor_cores.unused(Facts(product("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"))) == []
    assert tensor_cores.unused(Facts(product("maxwell_sgemm_128x64_nn", on=P100))) == []
    assert tensor_cores.unused(Facts(product("Cijk_Alik_Bljk_SB_MT64x16x32_MI16x16x1_SN", on=MI300))) == []


def test_a_small_share_of_the_step_is_none() -> None:
    assert tensor_cores.unused(Facts(product("volta_sgemm_128x64_nn", 37))) == []  # of 744 µs: 4.97 %
    assert len(tensor_cores.unused(Facts(product("volta_sgemm_128x64_nn", 38)))) == 1  # of 745 µs: 5.1 %


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (product("volta_sgemm_128x64_nn", on=None), "capability"),
        (product("volta_sgemm_128x64_nn", on=Device("xpu:0", "ARTEMIS")), "ARTEMIS"),
        (product("some_kernel"), "no kernel"),
        (product("my_gemm"), "do not tell"),
    ],
)
def test_what_does_not_tell(made: Trace, why: str) -> None:
    for rule in (tensor_cores.unused, tensor_cores.tf32_off):
        with pytest.raises(NotEvaluableError, match=why):
            rule(Facts(made))


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
    units = of_device(device)
    assert (units.half, units.tf32) == (half, tf32)


def test_half_of_products_is_saved_by_tf32() -> None:
    facts = Facts(product("ampere_sgemm_128x64_nn", on=A100))
    (found,) = tensor_cores.tf32_off(facts)
    assert predict(facts, found).saving_ns == 150_000
    prediction = predict(facts, found)
    assert prediction.p90_ns == facts.step_ns  # no gain on some devices


def test_tf32_that_is_on_or_not_there() -> None:
    assert tensor_cores.tf32_off(Facts(product("ampere_sgemm_128x64_nn", on=V100))) == []
    assert tensor_cores.tf32_off(Facts(product("ampere_sgemm_128x64_nn", 37, on=A100))) == []  # of 744 µs: 4.97 %
    convolution = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_g1_ffma"
    assert tensor_cores.tf32_off(Facts(product(convolution, on=A100))) == []
    used = Op("aten::mm", [("cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", 10)])
    plain = Op("aten::mm", [("ampere_sgemm_128x64_nn", 300)])
    assert tensor_cores.tf32_off(Facts(training(used, plain, names=torch_name))) == []


def padded(kernel: str, shapes: str, us: int = 100, dtypes: str = '["c10::Half","c10::Half","c10::Half"]') -> Facts:
    """A product of 16-bit numbers, and 900 µs of something else."""
    more = {"shapes": shapes, "dtypes": dtypes}
    ops = Op("aten::relu", [("relu", 900)]), Op("aten::addmm", [(kernel, us)], more=more)
    return Facts(training(*ops, steps=2, names=torch_name))


VOCABULARY = "[[30522],[141,512],[512,30522],[],[]]"
S16816 = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn"


def test_three_tenths_are_saved_by_padding() -> None:
    facts = padded(S16816, VOCABULARY)
    (found,) = alignment.find(facts)
    assert found.fill == {"size": "30522", "padded": "30528"}
    assert predict(facts, found).saving_ns == 30_000


@pytest.mark.parametrize(
    ("kernel", "shapes", "fires"),
    [
        (S16816, "[[30528],[141,512],[512,30528],[],[]]", False),  # aligned: rows of 141 do not matter
        (S16816, "[[64],[141,9],[9,64],[],[]]", True),
        (S16816, "[[64],[141,4],[4,64],[],[]]", False),  # too small to be padded
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_tn_align8", VOCABULARY, False),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_tn_align2", "[[64],[141,512],[512,64]]", True),  # read across
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_tn_align2", "[[64],[144,512],[512,64]]", False),
    ],
)
def test_dimensions_and_what_kernels_read(kernel: str, shapes: str, fires: bool) -> None:
    assert bool(alignment.find(padded(kernel, shapes))) is fires


@pytest.mark.parametrize(
    ("shapes", "strides", "fires"),
    [
        ("[[788,768],[768,768]]", "[[768,1],[1,768]]", False),
        ("[[768,788],[788,768]]", "[[1,768],[768,1]]", False),  # the gradient of a weight reads 788 rows of 768
        ("[[768,788],[788,768]]", "[[788,1],[768,1]]", True),
        ("[[64,512],[512,30522]]", "[[512,1],[1,512]]", True),  # rows of the product
        ("[[30522,64],[64,512]]", "[[1,30522],[512,1]]", True),
        ("[[64,512],[512,64]]", "[[513,1],[64,1]]", True),  # rows of a larger tensor
    ],
)
def test_how_factors_lie_in_memory(shapes: str, strides: str, fires: bool) -> None:
    more = {
        "shapes": shapes,
        "dtypes": '["c10::Half","c10::Half"]',
        "args": f'{{"Input Strides":{strides},"Ev Idx":3}}',
    }
    ops = Op("aten::relu", [("relu", 900)]), Op("aten::mm", [(S16816, 100)], more=more)
    assert bool(alignment.find(Facts(training(*ops, names=torch_name)))) is fires


def test_only_half_precision_and_a_share_of_the_step() -> None:
    assert alignment.find(padded("ampere_sgemm_128x64_nn", VOCABULARY, dtypes='["float","float","float"]')) == []
    assert alignment.find(padded(S16816, VOCABULARY, 47)) == []  # 47 of 954 µs: 4.93 %
    assert len(alignment.find(padded(S16816, VOCABULARY, 48))) == 1  # 48 of 955 µs: 5.03 %


def test_unaligned_products_of_paddle() -> None:
    more = {"shapes": "[[16, 141, 512], [512, 30522]]", "dtypes": '["float16", "float16"]'}
    ops = Op("relu dygraph", [("relu", 900)]), Op("matmul dygraph", [(S16816, 100)], more=more)
    facts = Facts(training(*ops, names=paddle_name))
    (found,) = alignment.find(facts)
    assert predict(facts, found).saving_ns == 30_000


def test_without_shapes_dimensions_are_unknown() -> None:
    with pytest.raises(NotEvaluableError, match="shapes"):
        alignment.find(Facts(product(S16816)))


def test_dimensions_of_a_real_recording(traces: Path) -> None:
    """BERT's vocabulary of 30,522 words is no multiple of 8, and cuBLAS reads it two numbers at once (``align2``)."""
    facts = Facts(load(traces / "torch" / "h100-bert-small.json.gz"), Thresholds(multiply_share=0))
    (found,) = alignment.find(facts)
    names = facts.trace.events["name"].to_pylist()
    assert found.fill["size"] == "30522"
    assert ["align2" in names[row] for row in found.rows] == [True]


def test_time_of_a_real_training_on_ordinary_cores(traces: Path) -> None:
    """A V100 that trains in single precision: every kernel that multiplies, told by hand, none of them twice."""
    facts = Facts(load(traces / "torch" / "v100-ns-resolution.json.gz"))
    (found,) = tensor_cores.unused(facts)
    events = facts.trace.to_pandas()
    words = "sgemm|scudnn|dgrad_engine|dgrad2d|wgrad|winograd|convolve"
    work = events[(events["kind"] == "kernel") & events["name"].astype(str).str.contains(words)]
    assert set(found.rows) <= set(work.index)
    assert work.loc[found.rows, "dur_ns"].sum() > 0.98 * work["dur_ns"].sum()
