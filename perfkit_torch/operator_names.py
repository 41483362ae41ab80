"""PyTorch's operator names → canonical names (perfkit_core.operator_names)."""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.operator_names import GRADIENT_SUFFIX

# canonical name: the aten names (without namespace, overload and trailing underscore) that compute it
_FORWARD: Final = {
    "matmul": "matmul mm addmm mv addmv baddbmm linear _addmm_activation addbmm dot vdot inner",
    "bmm": "bmm",
    "outer": "outer ger addr",
    "einsum": "einsum",
    "conv": "conv1d conv2d conv3d convolution _convolution mkldnn_convolution cudnn_convolution miopen_convolution "
    "thnn_conv2d _slow_conv2d_forward slow_conv3d _conv_depthwise2d conv_depthwise3d cudnn_convolution_relu",
    "conv_transpose": "conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose",
    "attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention _flash_attention_forward "
    "_scaled_dot_product_efficient_attention _efficient_attention_forward _scaled_dot_product_attention_math "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu _native_multi_head_attention",
    "rnn": "lstm gru rnn_tanh rnn_relu _cudnn_rnn _thnn_fused_lstm_cell miopen_rnn",
    "embedding": "embedding embedding_bag _embedding_bag _embedding_bag_forward_only",
    "batch_norm": "batch_norm _batch_norm_impl_index native_batch_norm cudnn_batch_norm miopen_batch_norm "
    "_native_batch_norm_legit _batch_norm_with_update batch_norm_stats batch_norm_elemt",
    "layer_norm": "layer_norm native_layer_norm",
    "group_norm": "group_norm native_group_norm instance_norm",
    "rms_norm": "rms_norm _fused_rms_norm",
    "softmax": "softmax _softmax _safe_softmax _masked_softmax",
    "log_softmax": "log_softmax _log_softmax",
    "gelu": "gelu",
    "silu": "silu",
    "relu": "relu relu6 threshold clamp_min",
    "leaky_relu": "leaky_relu",
    "dropout": "dropout native_dropout _fused_dropout feature_dropout bernoulli",
    "cross_entropy": "cross_entropy_loss",
    "nll_loss": "nll_loss nll_loss_forward nll_loss_nd nll_loss2d nll_loss2d_forward",
    "mse_loss": "mse_loss",
    "l1_loss": "l1_loss smooth_l1_loss huber_loss",
    "binary_cross_entropy": "binary_cross_entropy binary_cross_entropy_with_logits",
    "pool": "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
    "interpolate": "upsample_nearest2d upsample_bilinear2d upsample_bicubic2d upsample_nearest1d upsample_linear1d",
    "pad": "pad constant_pad_nd reflection_pad2d replication_pad2d",
    "subtract": "sub rsub subtract",
    "multiply": "mul multiply addcmul",
    "divide": "div true_divide floor_divide divide addcdiv",
    "remainder": "remainder fmod",
    "compare": "eq ne lt le gt ge equal isclose allclose",
    "logical": "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor "
    "isnan isinf isfinite __and__ __or__",
    "negative": "neg negative",
    "clip": "clamp clip clamp_max",
    "mean": "mean",
    "norm": "norm linalg_vector_norm vector_norm _weight_norm_interface",
    "var": "var var_mean std std_mean",
    "max": "max amax",
    "min": "min amin",
    "any_all": "any all",
    "reshape": "reshape view flatten squeeze unsqueeze _unsafe_view _reshape_alias unflatten view_as alias resize",
    "transpose": "transpose t permute T swapaxes movedim numpy_T adjoint",
    "expand": "expand expand_as repeat broadcast_to repeat_interleave",
    "concat": "cat concat _cat",
    "split": "split chunk unbind split_with_sizes tensor_split unsafe_split",
    "stack": "stack hstack vstack",
    "slice": "slice select narrow as_strided diagonal",
    "gather": "gather take_along_dim index_select take",
    "scatter": "scatter scatter_add index_add index_copy index_put _index_put_impl masked_scatter",
    "index": "index masked_select",
    "cast": "to _to_copy type_as float half",
    "copy": "copy clone _copy_from pin_memory _pin_memory lift_fresh detach",
    "contiguous": "contiguous",
    "fill": "fill zero zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full empty empty_like "
    "empty_strided new_empty new_empty_strided masked_fill scalar_tensor",
    "random": "rand randn randint rand_like randn_like normal uniform randperm multinomial exponential",
    "item": "item _local_scalar_dense is_nonzero",
    "one_hot": "one_hot",
    "triangular": "tril triu",
    "check_finite": "_amp_foreach_non_finite_check_and_unscale",
    "scale": "_amp_update_scale",
    "all_reduce": "allreduce all_reduce allreduce_coalesced",
    "all_gather": "allgather all_gather all_gather_into_tensor _allgather_base allgather_into_tensor_coalesced",
    "reduce_scatter": "reduce_scatter reduce_scatter_tensor _reduce_scatter_base",
    "all_to_all": "alltoall all_to_all all_to_all_single alltoall_base",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
    "barrier": "barrier",
}
_SAME: Final = (
    "add pow sqrt rsqrt exp log abs sign floor round where sin cos erf reciprocal maximum minimum square sum prod "
    "argmax argmin topk sort cumsum nonzero tile flip roll arange sigmoid tanh elu hardswish softplus linspace"
)
_TABLE: Final = {native: name for name, natives in _FORWARD.items() for native in natives.split()} | {
    name: name for name in _SAME.split() if name != "linspace"
}
_NODES: Final = {
    "addmm": "matmul", "mm": "matmul", "linear": "matmul", "t": "transpose", "unsafe_view": "reshape",
    "convolution": "conv", "cudnn_batch_norm": "batch_norm", "native_batch_norm": "batch_norm",
    "max_pool2d_with_indices": "pool",
}  # fmt: skip
_EVALUATE: Final = "autograd::engine::evaluate_function: "
_NAMESPACE: Final = re.compile(r"^(?:aten|prims|c10d|_c10d_functional|nccl|gloo)::?")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIMENSION: Final = re.compile(r"(?<=\w)([123])D")  # MaxPool2D is max_pool2d
_BACKWARD_NODE: Final = re.compile(r"(\w+?)Backward\d*")
_BACKWARD_KERNEL: Final = re.compile(r"(\w+?)(?:_backward|_backward_data|_dense_backward)(?:_input|_weight|_bias)?")


@functools.lru_cache(maxsize=65536)
def operator_name(native: str) -> str | None:
    """Canonical name of a torch operator, None where unknown."""
    name = native.removeprefix(_EVALUATE)
    if name.endswith("AccumulateGrad"):
        return "accumulate_grad"
    node = _BACKWARD_NODE.fullmatch(name)
    if node:
        return _gradient(_CAMEL.sub("_", _DIMENSION.sub(r"\1d", node[1])).lower())
    if not _NAMESPACE.match(name):
        return None
    name = _NAMESPACE.sub("", name).partition(".")[0].rstrip("_")
    if name.startswith(("_foreach_", "_fused_")):
        return _TABLE.get(name) or "optimizer_update"
    kernel = _BACKWARD_KERNEL.fullmatch(name)
    return _gradient(kernel[1]) if kernel and name not in _TABLE else _TABLE.get(name)


def _gradient(forward: str) -> str | None:
    name = _NODES.get(forward) or _TABLE.get(forward) or _TABLE.get(f"_{forward}")
    return name + GRADIENT_SUFFIX if name else None
