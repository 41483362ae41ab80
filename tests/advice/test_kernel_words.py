"""Number format and hardware unit by the names of kernels, and by recorded types of operators."""

from __future__ import annotations

import pytest

from perfkit_core.advice import matrix_products
from perfkit_core.advice.matrix_products import HALF, OTHER, PLAIN, SINGLE, TENSOR, UNKNOWN

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
def test_the_type_and_the_unit_in_a_name(name: str) -> None:
    assert matrix_products.multiplies(name.lower())
    assert (matrix_products.number_type(name.lower()), matrix_products.unit(name.lower())) == NAMES[name]


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
def test_names_that_are_no_products(name: str) -> None:
    assert not matrix_products.multiplies(name.lower())


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
    assert matrix_products.type_of_inputs(dtypes) == type_
