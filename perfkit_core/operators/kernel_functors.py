"""What do the generic kernels compute, for each element or over many: which function was put into the template?

ATen and Paddle have a few templates for everything that goes element by element or reduces
(``vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>``); the function inside says what it is.
"""

from __future__ import annotations

import re
from typing import Final

from perfkit_core.operators.kernel_rules import read_rules

_TEMPLATE: Final = re.compile(
    r"(?:vectorized|unrolled|gpu|index|_scatter_gather|legacy)_?elementwise_kernel|::elementwise_kernel|"
    r"[ :]reduce_kernel<|elementwise_kernel_with_index|VectorizedElementwise|VectorizedBroadcast|"
    r"elementwise_kernel_manual|ReduceHigherDimKernel|ReduceAnyKernel|IndexKernel<|vectorized_templated_elementwise_kernel"
)
_FUNCTORS: Final = read_rules(r"""
optimizer_update: MomentumFunctor Adam\w*Functor SGD\w*Functor Lamb\w*Functor
loss ~ mse_ nll_?loss cross_?entropy smooth_l1 huber binary_cross bce kl_?div hinge margin
dropout ~ dropout masked_scale
normalization ~ batch_?norm layer_?norm group_?norm rms_?norm renorm_
softmax ~ softmax
activation ~ relu gelu silu swish sigmoid tanh threshold softplus hard(?:tanh|shrink|swish) softshrink mish glu_ elu_
 prelu
pooling ~ pool
quantization ~ quant _hfp8 hfp8_ fp8
random ~ bernoulli philox uniform_ normal_ random exponential_ cauchy
indexing ~ scatter_gather index_kernel index_put index_copy gather scatter index_elementwise take_kernel put_kernel
 index_?fill IndexSelect OneHot
reduction ~ reduce_kernel ReduceHigher ReduceAny
reduction: (?:Sum|Mean|MeanAll|Max|Min|Prod)Functor
elementwise: masked_fill
creation ~ Fill\w*Functor fill_kernel arange linspace FullFunctor eye_ range_ ConstantFunctor
cast: CastFunctor CastKernel float(?:16|8)_copy_kernel direct_copy.*(?:LoadWithCast|StoreWithCast)
copy ~ direct_copy copy_device_to_device copy_kernel AssignFunctor IdentityFunctor
layout ~ ReshapeFunctor ReshapeGrad FlattenFunctor FlattenGrad Transpose Concat Split Expand\w*Functor flip_kernel roll_
""")
"""By the function in the template."""


def is_template(kernel_name: str) -> bool:
    """Whether the kernel is one of the templates for functions of elements and for reductions."""
    return _TEMPLATE.search(kernel_name) is not None


def template_family(kernel_name: str) -> str:
    """The family of the function in a template; arithmetic on elements where nothing else is told."""
    return next((family for family, pattern in _FUNCTORS if pattern.search(kernel_name)), "elementwise")
