"""Mapping of PyTorch's operator names to canonical names and to formulas of their FLOPs and bytes. Rules remove
prefixes and suffixes, such as the namespace: ``aten::mm`` becomes ``mm``. The table ``operator_names.toml`` maps the
remaining name. The formulas are in ``operator_formulas.toml``."""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.base.operators.names import GRADIENT_SUFFIX, fused_name, native_names
from perfkit_core.plugins.flops.registry import WRAPPER, OperatorFormula, read_formulas

_EVALUATE: Final = "autograd::engine::evaluate_function: "
_NAMESPACE: Final = re.compile(
    r"^(?:aten|prims|rngprims|inductor|inductor_prims|c10d|_c10d_functional|_c10d_functional_autograd|_dtensor|nccl|rccl|hccl|xccl|gloo|ucc|"
    r"mpi|mkl|static_runtime)::?|^(?=(?:detach_?|_grad_sum_to_size|record_param_comms)$)"
)
_QUANTIZED: Final = re.compile(r"^(?:_?quantized|mkldnn|mkldnn_prepacked|onednn|sparse|quantization)::")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIMENSION: Final = re.compile(r"(?<=\w)([123])D")  # MaxPool2D → max_pool2d
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


_names: Final = functools.partial(native_names, "perfkit_torch")


@functools.lru_cache(maxsize=65536)
def operator_name(native: str) -> str | None:
    """Return the canonical name of a torch operator, or None if the operator is unknown."""
    name = native.removeprefix(_EVALUATE)
    if name.endswith("AccumulateGrad"):
        return "accumulate_grad"
    canonical = _built_in(name) if has_namespace(name) else _foreign(name)
    if canonical:
        return canonical
    node = _BACKWARD_NODE.fullmatch(name) or _CUSTOM_NODE.fullmatch(name)
    forward = _library(node[1] or node[2]) if node else None  # set if an extension library defines the forward operator
    return forward + GRADIENT_SUFFIX if forward else _library(name)


def is_autograd_node(native: str) -> bool:
    """Return whether an operator is a node of autograd's graph, which calls the operators that compute gradients."""
    return native.startswith((_EVALUATE, "torch::autograd::")) or _BACKWARD_NODE.fullmatch(native) is not None


def has_namespace(native: str) -> bool:
    """Return whether torch itself defines an operator of this name, by its namespace."""
    return _NAMESPACE.match(native) is not None


def _built_in(native: str) -> str | None:
    name = _NAMESPACE.sub("", native).partition(".")[0]
    name = name if name.endswith("__") else name.rstrip("_")
    names = _names().names
    kernel = _BACKWARD_KERNEL.fullmatch(name)
    if name.startswith(("_foreach_", "_fused_")) and not kernel:
        # Optimizers use foreach operators, which take lists of tensors, and fused operators.
        fused = None if name.startswith("_foreach_") else _forward(name.removeprefix("_fused_"))
        return names.get(name) or fused or "optimizer_update"
    return _gradient(kernel[1]) if kernel and name not in names else _forward(name)


def _forward(name: str) -> str | None:
    names = _names().names
    if name in names:
        return names[name]
    bare = name.lstrip("_")
    short = _ENDING.sub("", bare)
    for spelling in (bare, _PREFIX.sub("", bare).lstrip("_"), short, _PREFIX.sub("", short)):
        canonical = names.get(spelling) or names.get(f"_{spelling}")
        if canonical:
            return canonical
    return None


def _gradient(forward: str) -> str | None:
    name = _forward(forward)
    return name + GRADIENT_SUFFIX if name else None


def _foreign(name: str) -> str | None:
    node = _BACKWARD_NODE.fullmatch(name)
    if node:
        return _gradient(_CAMEL.sub("_", _DIMENSION.sub(r"\1d", node[1])).lower())
    if not _QUANTIZED.match(name):
        return None
    bare = _QUANTIZED.sub("", name).partition(".")[0].rstrip("_").removeprefix("_")
    names, patterns = _names().names, _names().patterns["quantized"]
    if bare in names:
        return names[bare]
    return next((canonical for canonical, pattern in patterns if pattern.search(bare.lower())), None)


@functools.lru_cache(maxsize=65536)
def _library(name: str) -> str | None:
    if "fused_" in name or name.startswith("triton_"):
        fused = fused_name(name)
        if fused is not None or name.startswith("triton_"):
            return fused
    patterns = _names().patterns["libraries"]
    return next((canonical for canonical, pattern in patterns if pattern.match(name)), None)


_ATEN: Final = "aten::"


@functools.lru_cache(maxsize=65536)
def operator_formula(native: str) -> OperatorFormula | None:
    """Return the formula of a torch operator, or None if it has none of its own."""
    if is_autograd_node(native):
        return WRAPPER
    name = native.removeprefix(_ATEN).partition(".")[0]
    return read_formulas("perfkit_torch").get(name.rstrip("_") or name)
