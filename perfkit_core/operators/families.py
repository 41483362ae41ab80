"""Of which family is an operator?"""

from __future__ import annotations

from typing import Final

from perfkit_core.operators.names import GRADIENT_SUFFIX
from perfkit_core.operators.vocabulary import VOCABULARY

FAMILIES: Final[tuple[str, ...]] = tuple(VOCABULARY)
"""All families, in the order of the vocabulary."""

_FAMILY: Final = {name: family for family, names in VOCABULARY.items() for name in names.split()}


def family(op_name: str | None) -> str | None:
    """The family of a canonical name; a gradient is of its operator's family. None of None and of other names."""
    if op_name is None:
        return None
    return _FAMILY.get(op_name) or _FAMILY.get(op_name.removesuffix(GRADIENT_SUFFIX))
