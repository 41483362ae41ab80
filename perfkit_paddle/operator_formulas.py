"""Formulas for the FLOPs and bytes of Paddle's operators, from ``operator_formulas.toml``."""

from __future__ import annotations

import functools
from typing import Final

from perfkit_core.plugins.flops.registry import OperatorFormula, read_formulas

NAMESPACE: Final = "pd_op."
"""Namespace of the operators of PIR programs. An operator without a namespace belongs to an old static program."""


@functools.lru_cache(maxsize=65536)
def operator_formula(native: str) -> OperatorFormula | None:
    """Return the formula of a Paddle operator, or None if it has none of its own."""
    return read_formulas("perfkit_paddle").get(native.rstrip("_"))
