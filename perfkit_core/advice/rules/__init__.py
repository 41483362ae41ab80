"""One rule a file, or a small family of rules that look at the same thing. Each is a function of Facts."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.rules import (
    casts,
    copies,
    loader,
    memory,
    synchronisation,
    tensor_cores,
    utilisation,
    waiting,
)
from perfkit_core.plugins.contracts import Rule

RULES: Final[tuple[Rule, ...]] = (
    *loader.RULES,
    *synchronisation.RULES,
    *waiting.RULES,
    *copies.RULES,
    *casts.RULES,
    *tensor_cores.RULES,
    *memory.RULES,
    *utilisation.RULES,
)
"""The built-in rules."""
