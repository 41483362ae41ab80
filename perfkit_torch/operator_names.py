"""PyTorch's operator names → canonical names (perfkit_core.operators).

Rules take off what says how an operator was written (namespace, overload, back end, in place, functional copy of a
view, gradient); one table says what it computes (:mod:`perfkit_torch.operator_tables`).
"""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.operator_names import GRADIENT_SUFFIX
from perfkit_torch.library_operators import library_operator
from perfkit_torch.operator_tables import TABLE
from perfkit_torch.quantized_operators import quantized_operator

_NODES: Final = {
    "addmm": "matmul", "mm": "matmul", "linear": "matmul", "t": "transpose", "unsafe_view": "reshape",
    "convolution": "conv", "cudnn_batch_norm": "batch_norm", "native_batch_norm": "batch_norm",
    "max_pool2d_with_indices": "pool",
}  # fmt: skip
_EVALUATE: Final = "autograd::engine::evaluate_function: "
_NAMESPACE: Final = re.compile(
    r"^(?:aten|prims|rngprims|inductor|inductor_prims|c10d|_c10d_functional|_c10d_functional_autograd|_dtensor|nccl|gloo|mkl|"
    r"static_runtime)::?|^(?=(?:detach_?|_grad_sum_to_size|record_param_comms)$)"
)
_QUANTIZED: Final = re.compile(r"^(?:_?quantized|mkldnn|mkldnn_prepacked|onednn|sparse|quantization)::")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIMENSION: Final = re.compile(r"(?<=\w)([123])D")  # MaxPool2D is max_pool2d
_BACKWARD_NODE: Final = re.compile(r"(\w+?)Backward(?:Backward)?(?:AutogradNestedTensor)?\d*(?:_copy)?")
_CUSTOM_NODE: Final = re.compile(r"torch::autograd::CppNode<(.+)>|(.*DifferentiableGraph)Backward")
_BACKWARD_KERNEL: Final = re.compile(
    r"(\w+?)(?:_double)?(?:_dense|_sparse)?_backward(?:_data|_jvp|_overrideable|_elemt|_reduce)?"
    r"(?:_input|_weights?|_bias|_out)?"
)
_PREFIX: Final = re.compile(
    r"^(?:special_|linalg_|fft_|sparse_csr_|sparse_|mkldnn_|cudnn_|miopen_|mps_|quantized_|nested_|native_|unsafe_|"
    r"functional_|scaled_|resize_|no_grad_|mkl_)"
)
_ENDING: Final = re.compile(r"(?:_copy|_out|_functional|_inplace|_coalesced|_forward|_jvp)$")


@functools.lru_cache(maxsize=65536)
def operator_name(native: str) -> str | None:
    """Canonical name of a torch operator, None where unknown."""
    name = native.removeprefix(_EVALUATE)
    if name.endswith("AccumulateGrad"):
        return "accumulate_grad"
    found = _own(name) if _NAMESPACE.match(name) else _foreign(name)
    return found or _node_of_library(name) or library_operator(name)


def _foreign(name: str) -> str | None:
    """Of a node of autograd, or of a quantised operator."""
    node = _BACKWARD_NODE.fullmatch(name)
    if node:
        return _gradient(_CAMEL.sub("_", _DIMENSION.sub(r"\1d", node[1])).lower())
    return quantized_operator(_QUANTIZED.sub("", name)) if _QUANTIZED.match(name) else None


def _node_of_library(name: str) -> str | None:
    """Of a node whose forward operator an extension library defines."""
    node = _BACKWARD_NODE.fullmatch(name) or _CUSTOM_NODE.fullmatch(name)
    found = library_operator(node[1] or node[2]) if node else None
    return found + GRADIENT_SUFFIX if found else None


def _own(native: str) -> str | None:
    """Of an operator of PyTorch's own."""
    name = _NAMESPACE.sub("", native).partition(".")[0]
    name = name if name.endswith("__") else name.rstrip("_")
    kernel = _BACKWARD_KERNEL.fullmatch(name)
    if name.startswith(("_foreach_", "_fused_")) and not kernel:
        return TABLE.get(name) or _over_lists(name)
    return _gradient(kernel[1]) if kernel and name not in TABLE else _forward(name)


def _over_lists(name: str) -> str | None:
    """Of an operator over lists of tensors, which optimizers use; or of one that is fused otherwise."""
    other = None if name.startswith("_foreach_") else _forward(name.removeprefix("_fused_"))
    return other or "optimizer_update"


def _forward(name: str) -> str | None:
    """By the table: as it is, or without what tells how it is written."""
    if name in TABLE:
        return TABLE[name]
    bare = name.lstrip("_")
    short = _ENDING.sub("", bare)
    for each in (bare, _PREFIX.sub("", bare).lstrip("_"), short, _PREFIX.sub("", short)):
        found = TABLE.get(each) or TABLE.get(f"_{each}")
        if found:
            return found
    return None


def _gradient(forward: str) -> str | None:
    name = _NODES.get(forward) or _forward(forward)
    return name + GRADIENT_SUFFIX if name else None
