"""One rule a file, or a small family of rules that look at the same thing. Each is a function of Facts."""

from __future__ import annotations

from typing import Final

from perfkit_core.advice.rules import loader
from perfkit_core.plugins.contracts import Rule

RULES: Final[tuple[Rule, ...]] = (*loader.RULES,)
"""The built-in rules."""
