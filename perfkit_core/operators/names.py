"""Is a name canonical? Adapters map the frameworks' own names to these, so that runs compare.

The gradient of an operator is ``NAME_grad``, whichever node or kernel computes it. Adapters map with the hook
``perfkit_operator_names``; a native name without a canonical one stays null and shows up as unmatched.
"""

from __future__ import annotations

from typing import Final

from perfkit_core.operators.vocabulary import CONTAINER_FAMILIES, VOCABULARY

GRADIENT_SUFFIX: Final = "_grad"

CANONICAL: Final = frozenset(name for names in VOCABULARY.values() for name in names.split())
"""All canonical names, without those of gradients."""

CONTAINERS: Final = frozenset(name for family in CONTAINER_FAMILIES for name in VOCABULARY[family].split())
"""Canonical names of what only runs other operators, which are what to look at: a branch, a compiled region."""


def is_canonical(name: str) -> bool:
    """Whether ``name`` is in the vocabulary, as it is or as a gradient."""
    return name in CANONICAL or name.removesuffix(GRADIENT_SUFFIX) in CANONICAL


def is_container(name: str) -> bool:
    """Whether a canonical name stands for what only runs other operators."""
    return name.removesuffix(GRADIENT_SUFFIX) in CONTAINERS
