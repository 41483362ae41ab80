"""Paddle's operator names → the canonical ones. Rules take off what says how; one table says what.

The same operator appears as ``conv2d dygraph`` (eager), ``pd_op.conv2d`` (PIR), ``conv2d`` (old static graph), its
gradient as ``Global_Conv2dGradNodeFinal`` (3.x), ``Conv2dGradNodeFinal`` (2.6), ``pd_op.conv2d_grad`` or
``conv2d_grad``.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.operator_names import CANONICAL, GRADIENT_SUFFIX

_GRAD_NODE: Final = re.compile(r"(?:Global_|Local_)?(\w+?)GradNode(?:Final)?")
_ACCUMULATION: Final = re.compile(r"(?:Global_|Local_)?GradNodeAccumulation")
_SUFFIX: Final = re.compile(r"(?: dygraph| kernel launch| compute)$")
_PREFIXES: Final = ("pd_op.", "cinn_op.", "onednn_op.", "pd_kernel.", "c_")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_SAME: Final = """
matmul: mul matmul_v2 matmul_with_flatten addmm
linear: fc fused_linear fused_gemm_epilogue linear_v2
conv: conv1d conv2d conv3d depthwise_conv2d fused_conv2d_add_act
conv_transpose: conv2d_transpose conv3d_transpose depthwise_conv2d_transpose
attention: flash_attn flash_attn_unpadded flash_attn_qkvpacked memory_efficient_attention fused_attention \
 variable_length_memory_efficient_attention flash_attn_v3
rnn: lstm gru cudnn_lstm
embedding: lookup_table lookup_table_v2 embedding_with_scaled_gradient
batch_norm: sync_batch_norm fused_batch_norm_act
softmax: softmax_v2
silu: swish
hardswish: hard_swish
cross_entropy: cross_entropy_with_softmax softmax_with_cross_entropy margin_cross_entropy
mse_loss: square_error_cost
binary_cross_entropy: bce_loss sigmoid_cross_entropy_with_logits
pool: pool2d pool3d max_pool2d_with_index max_pool3d_with_index
interpolate: bilinear_interp nearest_interp bicubic_interp linear_interp trilinear_interp bilinear_interp_v2 \
 nearest_interp_v2
pad: pad2d pad3d
add: elementwise_add grad_add add_n
subtract: elementwise_sub
multiply: elementwise_mul
divide: elementwise_div div_scale
pow: elementwise_pow
maximum: elementwise_max fmax
minimum: elementwise_min fmin
remainder: elementwise_mod
compare: equal not_equal less_than less_equal greater_than greater_equal
logical: logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor
sum: reduce_sum reduce_sum_p
mean: mean_all reduce_mean
max: reduce_max amax
min: reduce_min amin
prod: reduce_prod
norm: p_norm frobenius_norm squared_l2_norm
argmax: arg_max
argmin: arg_min
topk: top_k top_k_v2 topk_v1
sort: argsort
any_all: any all reduce_any reduce_all
nonzero: where_index
reshape: reshape2 flatten flatten2 flatten_contiguous_range squeeze squeeze2 unsqueeze unsqueeze2 view_shape view_dtype
transpose: transpose2 trans_layout
expand: expand_v2 expand_as expand_as_v2 broadcast_to
split: split_with_num unbind unstack
slice: strided_slice
gather: gather_nd index_select index_sample take_along_axis
scatter: scatter_nd_add put_along_axis index_add
index: index_put
copy: memcpy memcpy_h2d memcpy_d2h copy_to copy_cross_scope
fill: full full_like full_int_array full_with_tensor full_batch_size_like fill_constant fill_any_like fill_any empty \
 empty_like masked_fill
arange: range linspace
random: uniform uniform_random gaussian gaussian_random randint randperm bernoulli multinomial \
 truncated_gaussian_random exponential
assign: assign_out assign_raw assign_value assign_value
one_hot: one_hot_v2
triangular: tril triu tril_triu tril_indices
optimizer_update: adam adamw adamax adagrad adadelta sgd momentum merged_momentum merged_adam fused_adam lamb lars \
 lars_momentum rmsprop rprop nadam radam asgd dgc_momentum distributed_fused_lamb ftrl
check_finite: check_finite_and_unscale
all_reduce: allreduce allreduce_sum allreduce_max allreduce_min allreduce_prod allreduce_avg mp_allreduce_sum
all_gather: allgather
reduce_scatter: reducescatter
reduce: reduce_avg
all_to_all: alltoall global_scatter global_gather
send: send_v2 partial_send p_send
recv: recv_v2 partial_recv p_recv
"""


def operator_name(native: str) -> str | None:
    """The canonical operator of a native operator name, ``NAME_grad`` for a gradient; None where unknown."""
    if _ACCUMULATION.fullmatch(native):
        return "accumulate_grad"
    node = _GRAD_NODE.fullmatch(native)
    name, gradient = (_snake(node[1]), True) if node else (_bare(native), False)
    stem = name.removesuffix("_double_grad").removesuffix("_triple_grad").removesuffix("_grad")
    canonical = _canonical(stem)
    if canonical is None:
        return None
    return canonical + GRADIENT_SUFFIX if gradient or stem != name else canonical


def _bare(native: str) -> str:
    """The operator's own name, without prefix, suffix and the underscore of in-place operators."""
    name = _SUFFIX.sub("", native)
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.rstrip("_")


def _snake(camel: str) -> str:
    """``CrossEntropyWithSoftmax`` → ``cross_entropy_with_softmax``."""
    return _WORD.sub("_", camel).lower()


def _canonical(name: str) -> str | None:
    return _table().get(name) or (name if name in CANONICAL else None)


@functools.cache
def _table() -> dict[str, str]:
    """Paddle's name → canonical name, for those that differ."""
    table = {}
    for line in _SAME.strip().splitlines():
        canonical, _, names = line.partition(":")
        table.update(dict.fromkeys(names.split(), canonical))
    return table
