"""What do the generic kernels compute, for each element or over many: which function was put into the template?

ATen and Paddle have a few templates for everything that goes element by element or reduces
(``vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>``); the function inside says what it is.
"""

from __future__ import annotations

import re
from typing import Final

_TEMPLATE: Final = re.compile(
    r"(?:vectorized|unrolled|gpu|index|_scatter_gather|legacy)_?elementwise_kernel|::elementwise_kernel|"
    r"[ :]reduce_kernel<|elementwise_kernel_with_index|VectorizedElementwise|VectorizedBroadcast|"
    r"elementwise_kernel_manual|ReduceHigherDimKernel|ReduceAnyKernel|IndexKernel<|vectorized_templated_elementwise_kernel"
)
_FUNCTORS: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("optimizer_update", r"MomentumFunctor|Adam\w*Functor|SGD\w*Functor|Lamb\w*Functor"),
        ("loss", r"(?i:mse_|nll_?loss|cross_?entropy|smooth_l1|huber|binary_cross|bce|kl_?div|hinge|margin)"),
        ("dropout", r"(?i:dropout|masked_scale)"),
        ("normalization", r"(?i:batch_?norm|layer_?norm|group_?norm|rms_?norm|renorm_)"),
        ("softmax", r"(?i:softmax)"),
        ("activation", r"(?i:relu|gelu|silu|swish|sigmoid|tanh|threshold|softplus|hard(?:tanh|shrink|swish)|softshrink|"
                       r"mish|glu_|elu_|prelu)"),
        ("pooling", r"(?i:pool)"),
        ("quantization", r"(?i:quant|_hfp8|hfp8_|fp8)"),
        ("random", r"(?i:bernoulli|philox|uniform_|normal_|random|exponential_|cauchy)"),
        ("indexing", r"(?i:scatter_gather|index_kernel|index_put|index_copy|gather|scatter|index_elementwise|"
                     r"take_kernel|put_kernel|index_?fill|IndexSelect|OneHot)"),
        ("reduction", r"(?i:reduce_kernel|ReduceHigher|ReduceAny)|(?:Sum|Mean|MeanAll|Max|Min|Prod)Functor"),
        ("elementwise", r"masked_fill"),
        ("creation", r"(?i:Fill\w*Functor|fill_kernel|arange|linspace|FullFunctor|eye_|range_|ConstantFunctor)"),
        ("cast", r"CastFunctor|CastKernel|float(?:16|8)_copy_kernel|direct_copy.*(?:LoadWithCast|StoreWithCast)"),
        ("copy", r"(?i:direct_copy|copy_device_to_device|copy_kernel|AssignFunctor|IdentityFunctor)"),
        ("layout", r"(?i:ReshapeFunctor|ReshapeGrad|FlattenFunctor|FlattenGrad|Transpose|Concat|Split|Expand\w*Functor|"
                   r"tril|triu|flip_kernel|roll_)"),
    )
)  # fmt: skip


def is_template(kernel_name: str) -> bool:
    """Whether the kernel is one of the templates for functions of elements and for reductions."""
    return _TEMPLATE.search(kernel_name) is not None


def template_family(kernel_name: str) -> str:
    """The family of the function in a template; arithmetic on elements where nothing else is told."""
    return next((family for family, pattern in _FUNCTORS if pattern.search(kernel_name)), "elementwise")
