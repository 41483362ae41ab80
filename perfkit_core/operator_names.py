"""The vocabulary of canonical operator names, for adapters and plugins: :mod:`perfkit_core.operators.names`."""

from __future__ import annotations

from perfkit_core.operators.names import (
    CANONICAL,
    CONTAINERS,
    GRADIENT_SUFFIX,
    is_canonical,
    is_container,
)

__all__ = ["CANONICAL", "CONTAINERS", "GRADIENT_SUFFIX", "is_canonical", "is_container"]
