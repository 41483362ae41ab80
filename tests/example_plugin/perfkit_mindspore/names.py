"""What MindSpore's operator names mean in perfkit's vocabulary."""

from __future__ import annotations

import re
from typing import Final

from perfkit_core.model import schema
from perfkit_core.operators.names import GRADIENT_SUFFIX

_FORWARD: Final = {
    "MatMul": "matmul",
    "Mul": "multiply",
    "RealDiv": "divide",
    "TensorAdd": "add",
    "AddN": "add",
    "BiasAdd": "add",
    "Square": "square",
    "ReLU": "relu",
    "Relu": "relu",
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "Cast": "cast",
    "Concat": "concat",
    "Slice": "slice",
    "StridedSlice": "slice",
    "Split": "split",
    "Tile": "tile",
    "GatherV2": "gather",
    "TransData": "copy",
    "Assign": "assign",
    "AssignAdd": "add",
    "SigmoidCrossEntropyWithLogits": "binary_cross_entropy",
}
_UPDATES: Final = frozenset({"Adam", "ApplyFtrl"})
_INSTANCE: Final = re.compile(r"-op\d+$")


def clean_name(name: str) -> str:
    """``Mul-op29`` → ``Mul``: the number only says which node of the graph it is."""
    return _INSTANCE.sub("", name)


def operator_name(native: str) -> str | None:
    """Canonical name of a MindSpore operator, None where unknown."""
    if native in _UPDATES:
        return "optimizer_update"
    forward = _FORWARD.get(native.removesuffix("Grad"))
    return forward + GRADIENT_SUFFIX if forward and native.endswith("Grad") else forward


def phase(full_name: str) -> str | None:
    """Phase of a graph node from its scope: gradients and the optimizer have scopes of their own."""
    if "/optimizer_" in full_name:
        return schema.OPTIMIZER
    if full_name.startswith("Gradients/"):
        return schema.BACKWARD
    return schema.FORWARD if full_name.startswith("Default/") else None
