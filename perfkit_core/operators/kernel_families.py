"""Of which family is a kernel, by its name?

A name is tried in this order: what the compiler Triton fused (:mod:`perfkit_core.operators.fused_kernels`), what a
library is for, what is computed for each element of a template (:mod:`perfkit_core.operators.kernel_functors`). The
first rule that matches decides, so the order of the rules is part of their meaning.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.operators.fused_kernels import fused_family
from perfkit_core.operators.kernel_functors import is_template, template_family

_RULES: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        # communication and waiting
        ("collective", r"[nr]ccl|[xh]ccl|multimem_|all_?reduce|AllReduce|cross_device_reduce|one_shot_|two_shot_|"
                       r"all_?gather|reduce_?scatter_|nvshmem|AllGather|ReduceScatter|AllToAll|all_?to_?all"),
        ("synchronization", r"spin_kernel|^event_(?:wait|record)$|barrier|wait_signal|cooperative_sync|stream_wait"),
        ("copy", r"^(?:Memcpy|MEMCPY|CopyDevice|CopyHost|dma_request$)|__amd_rocclr_copy|^hipMemcpy|"
                 r"SubTensorOpWithSubTensor"),
        ("cast", r"SubTensorOpWithCastTensor|TensorConversionOp"),
        ("creation", r"^(?:Memset|MEMSET)|__amd_rocclr_fill|^FillBuffer|SubTensorOpWithScalar|^hipMemset"),
        # the device program of a compiled model is one kernel, under the name of its function
        ("compiled_region", r"^(?:pe_exe|merge|remote)$"),
        # layout changes around the kernels of a library
        ("layout", r"nchwToNhwc|nhwcToNchw|nchw2nhwc|batched_transpose_|NCHWtoNHWC|TensorReorder|[Tt]ranspose(?:Simple|"
                   r"Readwrite|Kernel)|transposeKernel|transpose_kernel|tensorTransform|(?<!cudnn::cnn::)im2col|col2im|Im2Col|Col2Im|"
                   r"compute_cuda_kernel|permute_pooled_embs|TilingSwapDim|SwapDim1And2|Permute(?:Kernel|WithEigen)"),
        # layers
        ("mixture_of_experts", r"moe|MoE|(?i:expert)|routingIndices"),
        ("attention", r"(?i:flash(?!infer)|Batch(?:Prefill|Decode)With|Single(?:Prefill|Decode)With|fmha|attn|"
                      r"attention|mla_|_mha_|mha_fwd|mha_bwd|pagedkv|sdpa|rotary|fused_?rope|"
                      r"[_:]rope(?![a-z])|reshape_and_cache|concat_and_cache|kv_?cache)"),
        ("normalization", r"(?i:batch_?norm|layer_?norm|rms_?norm|group_?norm|instance_?norm|weight_?norm)|"
                          r"bn_(?:fw|bw)|GammaBeta|RowwiseMoments|ComputeGradientFusedParams|ComputeInternalGradients|"
                          r"cuApplyLayerNorm|BNForward|BNBackward|BatchNorm|BNParamReduce|ln_(?:fwd|bwd)_"),
        ("loss", r"(?i:nll_?loss|ClassNLL|cross_?entropy|mse_(?:loss|kernel|backward)|smooth_l1|huber|binary_cross|"
                 r"bce_loss|ctc_|warp_?ctc|kl_?div|hinge|margin_loss)"),
        ("softmax", r"(?i:soft_?max)"),
        ("embedding", r"(?i:embedding|lookup_?table)|bounds_check_indices|krn_partial(?:s|_segment)|"
                      r"compute_grad_weight|sum_and_scatter"),
        ("rnn", r"(?i:lstm|gru_|_gru|rnn_|elemWiseRNN|RNN_|persist_rnn)"),
        ("conv", r"(?i:convol|conv_?[123]d|[_:]conv|conv[_:]|winograd|implicit_?gemm|scudnn|hcudnn|icudnn|fprop|dgrad|"
                 r"wgrad)|igemm_(?:fwd|bwd|wrw)|miopenSp3|sp3Asm|naive_conv|bwd_weight|bwd_data|fft2d_[rc]2[rc]|"
                 r"cask_cudnn|cudnn::(?:cnn|detail|gemm)|fft1d_[rc]2[rc].*cudnn|generateWinograd|Conv2d|Conv3d|"
                 r"cudnn.*(?:bias_act|addTensor|add_tensor|scalePackedTensor|opTensor)|flip_filter"),
        ("pooling", r"(?i:pool)"),
        ("resampling", r"(?i:upsample|interpolate|interp_|_interp|grid_?sample|affine_?grid|ResizeKernel)|"
                       r"KeNearest|KeBilinear|KeBicubic|KeTrilinear"),
        ("matmul", r"(?i:(?<!fb)gemm|gemv|matmul|cublas|hipblas|rocblas|nvjet|xmma|tensile|split_?k_?reduce|"
                   r"wmma_|mma_sync|cutlass_[0-9]+_)|Cijk_|^bmm_|dot_kernel|reduce_1Block_kernel|scal_kernel|rocblas_|cutlass::Kernel|"
                   r"ck::.*[Gg]emm|_mm_|trsm|syrk"),
        ("optimizer_update", r"multi_tensor_apply|(?i:adam|adagrad|adadelta|momentum|rmsprop|lamb_|lars_|_sgd|sgd_|"
                             r"SGDKernel|SGDDense|sgdfunctor|check_finite|CheckFinite|non_finite|loss_scal|"
                             r"amp_update)"),
        ("dropout", r"(?i:dropout)"),
        ("random", r"distribution_(?:elementwise|nullary)|(?i:philox|curand|bernoulli|random|multinomial|randperm|"
                   r"uniform_|gaussian|rand_kernel|poisson)|uniform_kernel|normal_kernel"),
        ("quantization", r"(?i:quant|_FP8|fp8_|hfp8|int8_|to_fp8|fp4_)"),
        ("detection", r"(?i:(?<![a-z])nms|roi_?align|roi_?pool|box_coder|yolo_box|prior_?box)"),
        ("fft", r"(?i:vector_fft|regular_fft|vkfft|rocfft|cufft|fft_)"),
        ("linear_algebra", r"(?i:cusolver|rocsolver|magma|getrf|getrs|potrf|geqrf|syev|gesvd)"),
        ("graph", r"(?i:graph_?send|send_u_recv|GraphSend|graph_?sample)"),
        # order
        ("sort", r"(?i:radix_?sort|bitonic|merge_?sort|block_sort|sort_?kernel|sort_?pairs|segmented_?sort|top_?k|"
                 r"gatherTopK|DeviceUnique|unique_by_key|mode_kernel|kthvalue|median|searchsorted|bucketize|run_?length)|"
                 r"sortKeyValue|fillSliceWithIndex|_sort_|^sort"),
        ("scan", r"(?i:device_?scan|scan_?kernel|_scan_|cum_?(?:sum|prod|max|min)|exclusive_?sum|decoupled_look)|"
                 r"tensor_kernel_scan"),
        ("reduction", r"DeviceReduce|ReduceByKey|DeviceCompactInit|HistogramKernel|histogram|DeviceSegmentedReduce"),
        ("indexing", r"DeviceSelect|DeviceCompact|(?i:nonzero|non_zero|masked_select|flag_?if)|write_indices"),
    )
)  # fmt: skip
_LATE: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("indexing", r"(?i:index|gather|scatter|_take_|put_kernel|one_?hot|permute_(?:1D|2D|ind|pool)|offsets_range|"
                     r"lengths_range)"),
        ("layout", r"CatArray|(?i:transpose|permute|concat|[_:]split|[_:]stack|slice|strided_?copy|tril|flip_|roll_|"
                   r"pixel_?shuffle|tile_|expand|[_:]pad|pad\dd|reflection_pad|replication_pad)"),
        ("activation", r"(?i:relu|gelu|silu|swiglu|sigmoid|tanh|act_and_mul|activation)"),
        ("conv", r"cudnn"),
        ("reduction", r"(?i:reduce|reduction|[_:]sum_|norm_kernel|argmax|argmin|mean_kernel)"),
        ("cast", r"(?i:cast_kernel|convert_|_to_float|cast(?:Cuda)?Kernel)"),
        ("copy", r"(?i:copy)"),
        ("creation", r"(?i:fill|arange|memset|set_?zero|full_kernel|eye_)"),
        ("collective", r"(?i:send_?recv)"),
        ("elementwise", r"(?i:element_?wise|pointwise|binary_?op|unary_?op|BroadcastKernel|op_tensor|add_kernel|"
                        r"mul_kernel|DeviceTransform|for_each|parallel_for)"),
    )
)  # fmt: skip


@functools.lru_cache(maxsize=65536)
def kernel_family(kernel_name: str) -> str | None:
    """The family of what a kernel computes, None where its name does not tell."""
    if is_template(kernel_name):
        return template_family(kernel_name)
    return fused_family(kernel_name) or _first(_RULES, kernel_name) or _first(_LATE, kernel_name)


def _first(rules: tuple[tuple[str, re.Pattern[str]], ...], name: str) -> str | None:
    return next((family for family, pattern in rules if pattern.search(name)), None)
