"""The vocabulary of canonical operator names: what the frameworks' own names are mapped to, so that runs compare.

A name means what the operator computes, not how: ``aten::addmm`` and ``matmul dygraph`` are both ``matmul``. The
gradient of an operator is ``NAME_grad``, whichever node or kernel computes it. Adapters map with the hook
``perfkit_operator_names``; a native name without a canonical one stays null and shows up as unmatched.
"""

from __future__ import annotations

from typing import Final

GRADIENT_SUFFIX: Final = "_grad"

_NAMES: Final = (
    # contraction
    "matmul linear bmm outer einsum conv conv_transpose attention rnn embedding "
    # normalisation, activation, loss
    "batch_norm layer_norm group_norm rms_norm softmax log_softmax relu gelu silu sigmoid tanh leaky_relu elu "
    "hardswish softplus dropout cross_entropy nll_loss mse_loss l1_loss binary_cross_entropy "
    # pooling, resampling
    "pool interpolate pad "
    # elementwise
    "add subtract multiply divide pow sqrt rsqrt exp log abs negative sign floor round clip where compare logical "
    "sin cos erf reciprocal remainder maximum minimum square "
    # reduction, search
    "sum mean max min prod norm var argmax argmin topk sort cumsum any_all nonzero "
    # layout and movement
    "reshape transpose expand concat split stack slice gather scatter index tile flip roll copy cast contiguous "
    # creation, random, host
    "fill arange random assign item one_hot triangular "
    # training
    "accumulate_grad optimizer_update check_finite scale "
    # communication
    "all_reduce all_gather reduce_scatter broadcast reduce all_to_all send recv barrier"
)
CANONICAL: Final = frozenset(_NAMES.split())


def is_canonical(name: str) -> bool:
    """Whether ``name`` is in the vocabulary, as it is or as a gradient."""
    return name in CANONICAL or name.removesuffix(GRADIENT_SUFFIX) in CANONICAL
