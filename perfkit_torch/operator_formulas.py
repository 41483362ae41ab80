"""Formulas for the FLOPs and bytes of torch's operators, from ``operator_formulas.toml``."""

from __future__ import annotations

import functools
from typing import Final

from perfkit_core.plugins.flops.registry import WRAPPER, OperatorFormula, read_formulas
from perfkit_torch.operator_names import is_autograd_node

_NAMESPACE: Final = "aten::"


@functools.lru_cache(maxsize=65536)
def operator_formula(native: str) -> OperatorFormula | None:
    """Return the formula of a torch operator, or None if it has none of its own."""
    if is_autograd_node(native):
        return WRAPPER
    name = native.removeprefix(_NAMESPACE).partition(".")[0]
    return read_formulas("perfkit_torch").get(name.rstrip("_") or name)
