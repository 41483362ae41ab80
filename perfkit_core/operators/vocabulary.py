"""Which canonical operators are there, and of which family is each?

A name means what the operator computes, not how: ``aten::addmm`` and ``matmul dygraph`` are both ``matmul``. A family
holds what a framework may do with another of its names, so that what has no partner by name still has one by family.
"""

from __future__ import annotations

from typing import Final

VOCABULARY: Final[dict[str, str]] = {
    # arithmetic of large parts
    "matmul": "matmul linear bmm outer einsum bilinear",
    "conv": "conv conv_transpose deformable_conv",
    "attention": "attention rotary_embedding kv_cache",
    "rnn": "rnn",
    "embedding": "embedding",
    "mixture_of_experts": "mixture_of_experts",
    # layers
    "normalization": "batch_norm layer_norm group_norm rms_norm local_response_norm weight_norm",
    "softmax": "softmax log_softmax",
    "activation": "relu gelu silu sigmoid tanh leaky_relu elu hardswish softplus mish glu log_sigmoid hardsigmoid "
    "hardtanh shrink softsign prelu maxout swiglu",
    "dropout": "dropout",
    "loss": "cross_entropy nll_loss mse_loss l1_loss binary_cross_entropy kl_div ctc_loss margin_loss "
    "hierarchical_loss",
    "pooling": "pool unpool",
    "resampling": "interpolate grid_sample affine_grid",
    # element by element
    "elementwise": "add subtract multiply divide pow sqrt rsqrt exp log abs negative sign floor round ceil trunc clip "
    "where compare logical sin cos tan arcsin arccos arctan sinh cosh erf reciprocal remainder maximum minimum square "
    "scale lerp shift triangular complex special_function fused_elementwise nan_to_num distance",
    # many to one, and in order
    "reduction": "sum mean max min prod norm var argmax argmin any_all log_sum_exp count segment_reduce histogram "
    "fused_reduction",
    "scan": "cumsum cumprod cummax diff",
    "sort": "topk sort unique search median",
    # movement
    "layout": "reshape transpose expand concat split stack slice tile flip roll contiguous pad alias diagonal unfold "
    "pixel_shuffle",
    "indexing": "gather scatter index one_hot nonzero",
    "copy": "copy assign",
    "cast": "cast",
    "quantization": "quantize dequantize fake_quantize",
    "sparse_format": "sparse_tensor to_sparse to_dense coalesce",
    "creation": "fill arange",
    "random": "random",
    "host_read": "item fetch",
    # linear algebra, signals
    "linear_algebra": "cholesky qr svd eig inverse solve lu determinant matrix_function cross trace",
    "fft": "fft stft",
    # domains
    "detection": "nms roi_align boxes",
    "graph": "message_passing graph_sample",
    "decoding": "beam_search alignment",
    "metric": "accuracy",
    # training
    "gradient": "accumulate_grad",
    "optimizer_update": "optimizer_update check_finite update_loss_scale",
    # communication, host
    "collective": "all_reduce all_gather reduce_scatter broadcast reduce all_to_all send recv barrier wait_collective "
    "collective_call",
    "synchronization": "wait_event",
    "metadata": "metadata",
    "input_output": "file_access print",
    "control_flow": "control_flow",
    "compiled_region": "compiled_region",
    "custom_function": "custom_function",
}
"""Family → the canonical names in it."""

CONTAINER_FAMILIES: Final = ("control_flow", "compiled_region", "custom_function")
"""What only runs other operators: what is inside of such an operator has families of its own."""
