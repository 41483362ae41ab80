"""Mapping of MindSpore's operator names to perfkit's vocabulary."""

from __future__ import annotations

import re
from typing import Final

from perfkit_core.base.operators.names import GRADIENT_SUFFIX
from perfkit_core.trace.model import schema

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
    """Return "Mul" for "Mul-op29". The number only identifies a node of the graph."""
    return _INSTANCE.sub("", name)


def operator_name(native: str) -> str | None:
    """Return the canonical name of a MindSpore operator, None if the operator is unknown."""
    if native in _UPDATES:
        return "optimizer_update"
    forward = _FORWARD.get(native.removesuffix("Grad"))
    return forward + GRADIENT_SUFFIX if forward and native.endswith("Grad") else forward


def phase(full_name: str) -> str | None:
    """Return the phase of a graph node from its scope. Gradients and the optimizer have separate scopes."""
    if "/optimizer_" in full_name:
        return schema.OPTIMIZER
    if full_name.startswith("Gradients/"):
        return schema.BACKWARD
    return schema.FORWARD if full_name.startswith("Default/") else None
