"""What do the kernels compute that TorchInductor wrote in Triton? Their names list the operators that they fuse.

``triton_red_fused_add_mean_mul_pow_rsqrt_0`` adds, multiplies, and reduces. A kernel is of the family of its heaviest
operator: of what takes the time where a kernel holds several.
"""

from __future__ import annotations

import re
from typing import Final

_FUSED: Final = re.compile(r"^triton_(?:(poi|per|red|tem|for|split_scan)_)?(?:fused_)?(.*?)(?:_\d+)?$")
_HEAVIEST_FIRST: Final = tuple(
    (family, name, re.compile(pattern))
    for family, name, pattern in (
        ("attention", "attention", r"attention|flex_att|sdpa"),
        ("conv", "conv", r"convolution|conv[123]d"),
        ("matmul", "matmul", r"(?:^|_)(?:add|b|baddb)?mm(?:_|$)|linear|einsum|_scaled_mm"),
        ("normalization", "layer_norm", r"native_(?:layer|batch|group)_norm|(?:layer|batch|group|rms|instance)_norm"),
        ("loss", "cross_entropy", r"nll_loss|cross_entropy|mse_loss|l1_loss|huber|binary_cross"),
        ("softmax", "softmax", r"softmax"),
        ("embedding", "embedding", r"embedding"),
        ("pooling", "pool", r"pool"),
        ("resampling", "interpolate", r"upsample|grid_sampler"),
        ("sort", "sort", r"(?:^|_)(?:sort|topk|argsort)(?:_|$)"),
        ("scan", "cumsum", r"cumsum|cumprod|logcumsumexp"),
        ("optimizer_update", "optimizer_update", r"foreach|adam|sgd"),
        ("reduction", "fused_reduction", r"(?:^|_)(?:sum|mean|var|var_mean|std|amax|amin|max|min|any|all|prod|norm|"
                                         r"argmax|argmin|logsumexp|vector_norm)(?:_|$)"),
        ("dropout", "dropout", r"dropout"),
        ("random", "random", r"(?:^|_)(?:rand|randn|bernoulli|uniform|normal)(?:_|$)"),
        ("activation", "silu", r"silu|swish"),
        ("activation", "gelu", r"gelu"),
        ("activation", "relu", r"relu|threshold|hardtanh"),
        ("activation", "sigmoid", r"sigmoid"),
        ("activation", "tanh", r"tanh"),
        ("indexing", "gather", r"index|gather|scatter|masked_fill_scatter"),
        ("elementwise", "fused_elementwise", r"(?:^|_)(?:add|sub|mul|div|pow|rsqrt|sqrt|exp|log|neg|where|clamp|eq|ne|"
                                             r"lt|le|gt|ge|cos|sin|bitwise|logical|maximum|minimum|reciprocal|abs)(?:_|$)"),
        ("layout", "concat", r"(?:^|_)(?:cat|stack|constant_pad)(?:_|$)"),
        ("cast", "cast", r"_to_copy|convert_element_type"),
        ("copy", "copy", r"clone|copy"),
        ("layout", "reshape", r"view|transpose|permute|expand|slice|split|unsqueeze|select"),
        ("creation", "fill", r"zeros|ones|full|fill|arange|empty|iota"),
    )
)  # fmt: skip
_REDUCES: Final = ("per", "red")
"""Kinds of kernels that reduce, whatever their operators are called."""


def fused_family(kernel_name: str) -> str | None:
    """The family of the heaviest operator in a fused kernel."""
    found = _heaviest(kernel_name)
    return found[0] if found else None


def fused_name(kernel_name: str) -> str | None:
    """A canonical name for all that a fused kernel does."""
    found = _heaviest(kernel_name)
    return found[1] if found else None


def _heaviest(kernel_name: str) -> tuple[str, str] | None:
    parts = _FUSED.match(kernel_name)
    if parts is None:
        return None
    kind, operators = parts.groups()
    found = next(((family, name) for family, name, pattern in _HEAVIEST_FIRST if pattern.search(operators)), None)
    if kind in _REDUCES and (found is None or found[0] in ("elementwise", "activation", "cast", "copy", "layout")):
        return ("reduction", "fused_reduction")
    return found or (("elementwise", "fused_elementwise") if kind == "poi" else None)
