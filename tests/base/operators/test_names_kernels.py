"""Families of kernels by their names, for all libraries, compilers and templates in recordings and frameworks."""

from __future__ import annotations

import pytest

from perfkit_core.base.operators.names import FAMILIES, fused_name, is_canonical, kernel_family, kernel_rules

ATEN = "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 2ul> >(int, {})"
ATEN_CASTING = "void at::native::unrolled_elementwise_kernel<{}, at::native::memory::LoadWithCast<1> >(int)"

KERNELS = {
    "matmul": (
        "ampere_sgemm_128x64_nn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_execute_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8>(Params)",
        "nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false>(cublasGemvParams<float>)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const> > >()",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_swiGlu_dynBatch_sm100f",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_116kernel_gemm_xdl_cshuffleE",
        "triton_tem_fused_addmm_3",
        "triton_mm",
    ),
    "conv": (
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::P)",
        "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_execute_kernel_cudnn_train",
        "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1",
        "void fft2d_r2c_32x32<float, false, 5u, true>(float2*, float const*, int, cudnn::reduced_divisor)",
        "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
    ),
    "attention": (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(Params)",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "attn_fwd",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(__nv_bfloat16 const*)",
    ),
    "normalization": (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long, long)",
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)",
        "void phi::BNForwardTraining<float, 512, (phi::DataLayout)2>(float const*)",
        "MIOpenBatchNormFwdTrainSpatial",
        "triton_per_fused_native_layer_norm_2",
        ATEN.format("at::native::batch_norm_calc_invstd(at::Tensor const&)::{lambda()#1}", "int"),
    ),
    "softmax": (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*)",
        "triton_per_fused__log_softmax_7",
    ),
    "loss": (
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
        "void phi::CrossEntropyGradHardLabel<float, long>(float*)",
        ATEN.format("at::native::mse_kernel_cuda(at::TensorIteratorBase&)::{lambda()#1}", "int"),
    ),
    "activation": (
        ATEN.format("at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}", "int"),
        ATEN.format("at::native::threshold_kernel_impl<float>(at::TensorIteratorBase&, float, float)", "int"),
        "void phi::funcs::VectorizedElementwiseKernel<float, phi::funcs::CudaReluFunctor<float>, 1, 1, 4>()",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(c10::BFloat16*)",
        "triton_poi_fused__unsafe_view_mul_silu_2",
    ),
    "elementwise": (
        ATEN.format("at::native::CUDAFunctor_add<float>", "at::native::CUDAFunctor_add<float>"),
        ATEN.format("at::native::(anonymous namespace)::masked_fill_kernel(at::TensorIterator&)", "int"),
        ATEN_CASTING.format("at::native::BinaryFunctor<double, at::native::binary_internal::MulFunctor<double> >"),
        "void phi::funcs::VectorizedBroadcastKernel<phi::funcs::AddFunctor<float>, float, float, 2>()",
        "triton_poi_fused_add_cos_sin_0",
        "void at::native::triu_tril_kernel<float, int, true, 4, false>(at::cuda::detail::TensorInfo<float, int>)",
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorCwiseBinaryOp<int> > >()",
    ),
    "reduction": (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(int)",
        "void phi::funcs::ReduceHigherDimKernel<float, float, float, phi::kps::AddFunctor<float> >()",
        "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*> >(long*)",
        "triton_red_fused_add_mean_mul_pow_rsqrt_0",
    ),
    "cast": (
        ATEN_CASTING.format("at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}"),
        ATEN.format("at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", "int"),
        "void phi::funcs::VectorizedElementwiseKernel<float, phi::CastFunctor<float, double>, 1, 1, 4>()",
        "SubTensorOpWithCastTensor1d",
    ),
    "copy": (
        ATEN.format("at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}", "int"),
        "Memcpy HtoD (Pinned -> Device)",
        "MEMCPY_DtoH",
        "CopyDeviceToHost",
        "__amd_rocclr_copyBuffer",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
        "at::native::UnaryOpFunctor<long, 2, 1, 1>, at::native::Copy<long, long> >()",
    ),
    "creation": (
        ATEN.format("at::native::FillFunctor<float>", "at::native::FillFunctor<float>"),
        "Memset (Device)",
        "SubTensorOpWithScalar1d",
    ),
    "layout": (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>()",
        "batched_transpose_32x32_half",
        "void phi::funcs::TilingSwapDim1And2<float, 256, 32, 32, int>(float const*)",
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorSlicingOp<int> > >()",
    ),
    "indexing": (
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_put>(int)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>()",
        "void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather>(int)",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)",
        "void cub::DeviceSelectSweepKernel<cub::DispatchSelectIf<long*> >(long*)",
    ),
    "embedding": (
        "void split_embedding_backward_codegen_adagrad_unweighted_kernel_warp_per_row_1<float, float>(float*)",
        "void phi::EmbeddingFW<float, long, false>(float*)",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>(long*)",
    ),
    "optimizer_update": (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
        "at::native::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>()",
        "void phi::AdamKernelMEM<float, float>(float)",
        "void phi::funcs::VectorizedElementwiseKernel<float, phi::funcs::MomentumFunctor<float>, 1, 1, 4>()",
    ),
    "collective": (
        "hcom_allReduce__586_0_1",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)",
    ),
    "pooling": (
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
        "void phi::funcs::KernelPool2D<phi::funcs::MaxPool<float>, float>(int)",
    ),
    "sort": (
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800>(int)",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 1, false>(int)",
        "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, float, long>(int)",
    ),
    "scan": (
        "void cub::DeviceScanKernel<cub::DeviceScanPolicy<int>::Policy600, int*, int*>(int*)",
        "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*)",
    ),
    "random": (
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(long)",
    ),
    "dropout": (
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4>()",
    ),
    "quantization": (
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(c10::Float8_e4m3fn*)",
        "void tensorrt_llm::kernels::quantize_with_block_size<2, 16>(int, flashinfer::QuantizationSFLayout)",
        "void fbgemm_gpu::_FP8rowwise_to_float_cuda_kernel<float>(unsigned char const*)",
    ),
    "mixture_of_experts": (
        "void moe::dev::routing::routingIndicesHistogramKernel<moe::dev::routing::KernelParams<128> >()",
        "fused_moe_kernel",
    ),
    "synchronization": ("at::cuda::(anonymous namespace)::spin_kernel(long)", "event_wait"),
    "fft": ("void vector_fft<64u, EPT<8u>, 8u, (padding_t)0>(kernel_arguments_t<unsigned int>)",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "kernel"),
    [pytest.param(f, name, id=f"{f}-{name[:60]}") for f, names in KERNELS.items() for name in names],
)
def test_a_kernel_is_of_the_family_of_what_it_computes(family: str, kernel: str) -> None:
    """The family of each kernel was decided by hand."""
    assert kernel_family(kernel) == family


@pytest.mark.parametrize("kernel", ["my_kernel", "void work<float>(float*)", "", "Kernel2", "main"])
def test_an_ambiguous_name_has_no_family(kernel: str) -> None:
    """Families are not guessed: the operator that launched the kernel may have a family."""
    assert kernel_family(kernel) is None


def test_rules_name_families() -> None:
    """A rule that names an unknown family would raise when it matches."""
    rules = kernel_rules()
    assert {name for name, _ in (*rules.words, *rules.functions)} <= set(FAMILIES)
    assert [name for name, _ in rules.fused if not is_canonical(name)] == []
    patterns = [pattern for _, pattern in (*rules.words, *rules.functions, *rules.fused)]
    assert [one.pattern for one in patterns if one.search("")] == [], "a word that every name has"


def test_a_fused_kernel_has_a_canonical_name() -> None:
    """The host row that launches the kernel needs the name."""
    names = [fused_name(kernel) for kernels in KERNELS.values() for kernel in kernels if kernel.startswith("triton_")]
    assert len(names) > 5
    assert [name for name in names if name is None or not is_canonical(name)] == []
    assert fused_name("ampere_sgemm_128x64_nn") is None
