"""Which words in the name of a kernel tell its family? Regular expressions, the first line that matches decides.

``family: word word …`` heeds capital letters, ``family ~ word word …`` does not; indented lines go on with the line
above.
"""

from __future__ import annotations

import re
from typing import Final

Rules = tuple[tuple[str, re.Pattern[str]], ...]


def read_rules(text: str) -> Rules:
    """Families with one pattern for the words of each line, in the order of the lines."""
    joined = re.sub(r"\n\s+", " ", text.strip()).splitlines()
    return tuple(_rule(line) for line in joined if not line.startswith("#"))


def _rule(line: str) -> tuple[str, re.Pattern[str]]:
    family, *words = line.split()
    any_case = words[0] == "~"
    return family.rstrip(":"), re.compile("|".join(words[any_case:]), re.IGNORECASE if any_case else 0)


RULES: Final = read_rules(r"""
# communication and waiting
collective: [nr]ccl [xh]ccl msccl multimem_ all_?reduce AllReduce cross_device_reduce one_shot_ two_shot_ all_?gather
 reduce_?scatter_ nvshmem AllGather ReduceScatter AllToAll all_?to_?all
synchronization: spin_kernel ^event_(?:wait|record)$ (?:^|[_:])barrier(?:_kernel)?(?:<|\(|$) wait_signal
 cooperative_sync stream_wait
copy: ^Memcpy ^MEMCPY ^CopyDevice ^CopyHost ^dma_request$ __amd_rocclr_copy ^hipMemcpy SubTensorOpWithSubTensor
cast: SubTensorOpWithCastTensor TensorConversionOp
creation: ^Memset ^MEMSET __amd_rocclr_fill ^FillBuffer SubTensorOpWithScalar ^hipMemset
# the device program of a compiled model is one kernel, under the name of its function
compiled_region: ^(?:pe_exe|merge|remote)$
# layout changes around the kernels of a library
layout: nchwToNhwc nhwcToNchw nchw2nhwc batched_transpose_ NCHWtoNHWC TensorReorder transposeKernel transpose_kernel
 [Tt]ranspose(?:Simple|Readwrite|Kernel) tensorTransform (?<!cudnn::cnn::)im2col col2im Im2Col Im2d2Col Col2Im
 compute_cuda_kernel permute_pooled_embs TilingSwapDim SwapDim1And2 Permute(?:Kernel|WithEigen)
# layers
mixture_of_experts: moe MoE [Ee]xpert routingIndices
attention ~ flash(?!infer) Batch(?:Prefill|Decode)With Single(?:Prefill|Decode)With fmha attn attention mla_ _mha_
 mha_fwd mha_bwd pagedkv sdpa rotary fused_?rope [_:]rope(?![a-z]) reshape_and_cache concat_and_cache kv_?cache
normalization ~ batch_?norm layer_?norm rms_?norm group_?norm instance_?norm weight_?norm
normalization: bn_(?:fw|bw) GammaBeta RowwiseMoments ComputeGradientFusedParams ComputeInternalGradients
 cuApplyLayerNorm BNForward BNBackward BNParamReduce KeBN ln_(?:fwd|bwd)_
loss ~ nll_?loss ClassNLL cross_?entropy mse_(?:loss|kernel|backward) smooth_l1 huber binary_cross bce_loss ctc_
 warp_?ctc kl_?div hinge margin_loss
softmax ~ soft_?max
embedding ~ embedding lookup_?table
embedding: bounds_check_indices krn_partial(?:s|_segment) compute_grad_weight sum_and_scatter
rnn ~ lstm gru_ _gru rnn_ elemWiseRNN
conv ~ convol conv_?[123]d [_:]conv(?!ert) conv[_:] depthwise_?conv miopen\w*conv winograd implicit_?gemm scudnn hcudnn
 icudnn fprop dgrad wgrad
conv: igemm_(?:fwd|bwd|wrw) miopenSp3 sp3Asm bwd_weight bwd_data fft2d_[rc]2[rc] fft1d_[rc]2[rc].*cudnn cask_cudnn
 cudnn::(?:cnn|detail|gemm) flip_filter cudnn.*(?:bias_act|addTensor|add_tensor|scalePackedTensor|opTensor)
pooling ~ pool
resampling ~ upsample interpolate interp_ _interp grid_?sample affine_?grid ResizeKernel
resampling: KeNearest KeBilinear KeBicubic KeTrilinear
matmul ~ (?<!fb)gemm gemv matmul cublas hipblas rocblas nvjet xmma tensile split_?k_?reduce wvsplitk wmma_ mma_sync
 cutlass_[0-9]+_
matmul: Cijk_ ^bmm_ dot_kernel reduce_1Block_kernel scal_kernel cutlass::Kernel _mm_ trsm syrk
optimizer_update ~ multi_tensor_apply lpnorm_cleanup adam adagrad adadelta momentum rmsprop lamb_ lars_ _sgd sgd_
 SGDKernel SGDDense check_?finite non_?finite loss_?scal amp_?update
dropout ~ dropout
random ~ distribution_(?:elementwise|nullary) philox curand bernoulli random multinomial randperm uniform_ gaussian
 rand_kernel poisson normal_kernel
quantization ~ quant _FP8 fp8_ hfp8 int8_ to_fp8 fp4_
detection ~ (?<![a-z])nms roi_?align roi_?pool box_coder yolo_box prior_?box
fft ~ vector_fft regular_fft vkfft rocfft cufft fft_
linear_algebra ~ cusolver rocsolver magma getrf getrs potrf geqrf syev gesvd
graph ~ graph_?send send_u_recv graph_?sample
# order
sort ~ radix_?sort bitonic merge_?sort block_sort sort_?kernel sort_?pairs segmented_?sort top_?k DeviceUnique
 unique_by_key mode_kernel kthvalue median searchsorted bucketize run_?length sortKeyValue fillSliceWithIndex _sort_
 ^sort
scan ~ device_?scan scan_?kernel _scan_ cum_?(?:sum|prod|max|min) exclusive_?sum decoupled_look
reduction: DeviceReduce ReduceByKey DeviceCompactInit [Hh]istogram DeviceSegmentedReduce ArgMinMax ArgCUDA
 TensorReductionOp
indexing ~ DeviceSelect DeviceCompact nonzero non_zero masked_select flag_?if write_indices
# words that say little: only where no other tells
indexing ~ index gather scatter _take_ put_kernel one_?hot permute_(?:1D|2D|ind|pool) offsets_range lengths_range
elementwise ~ tri[lu]_ masked_fill
layout ~ CatArray transpose permute concat [_:]split [_:]stack slice slicing strided_?copy flip_ roll_ pixel_?shuffle
 tile_ expand [_:]pad pad\dd reflection_pad replication_pad TensorPadding TensorBroadcast TensorShuffl TensorReverse
activation ~ relu gelu silu swiglu sigmoid tanh act_and_mul activation
conv: cudnn
reduction ~ reduce reduction [_:]sum_ norm_kernel argmax argmin mean_kernel
cast ~ cast_kernel convert_ _to_float cast(?:Cuda)?Kernel
copy ~ copy
creation ~ fill arange memset set_?zero full_kernel eye_
collective ~ send_?recv
elementwise ~ elem(?:ent)?_?wise pointwise op(?:\dd)?_?tensor binary_?op unary_?op BroadcastKernel add_kernel mul_kernel
 DeviceTransform for_each parallel_for EigenMetaKernel
""")
"""From what a library is for to single words."""
