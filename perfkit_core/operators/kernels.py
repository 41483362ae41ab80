"""Kernel families, by the names of kernels (``kernel_families.toml``).

A name is tried in this order: the function inside a generic template of ATen or Paddle, the operators that
TorchInductor fused, and the words in the name.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from perfkit_core.operators.names import NamePattern, NamePatterns, compile_patterns, family
from perfkit_core.system.toml_files import convert, read_toml

_FUSED: Final = re.compile(r"^triton_(?:(poi|per|red|tem|for|split_scan)_)?(?:fused_)?(.*?)(?:_\d+)?$")
_REDUCES: Final = ("per", "red")
"""Kinds of fused kernels that reduce, whatever their operators are called."""
_LIGHT: Final = ("elementwise", "activation", "cast", "copy", "layout")
"""Families that a fused kernel which reduces is not in: the reduction takes the time."""


class _RulesFile(msgspec.Struct, forbid_unknown_fields=True):
    templates: tuple[str, ...]
    functions: tuple[NamePattern, ...]
    fused: tuple[NamePattern, ...]
    words: tuple[NamePattern, ...]


@dataclass(frozen=True, slots=True)
class KernelRules:
    """Patterns for kernel names. ``functions`` and ``words`` name families, ``fused`` canonical operators."""

    templates: re.Pattern[str]
    functions: NamePatterns
    fused: NamePatterns
    words: NamePatterns


@functools.cache
def kernel_rules() -> KernelRules:
    """Return the rules of ``kernel_families.toml``, compiled at the first call."""
    tables = read_toml("perfkit_core.operators", "kernel_families.toml")
    file = convert(tables, _RulesFile, "perfkit_core.operators/kernel_families.toml")
    functions, fused, words = map(compile_patterns, (file.functions, file.fused, file.words))
    return KernelRules(re.compile("|".join(file.templates)), functions, fused, words)


@functools.lru_cache(maxsize=65536)
def kernel_family(kernel_name: str) -> str | None:
    """Return the family of what a kernel computes, None where its name does not tell."""
    rules = kernel_rules()
    if rules.templates.search(kernel_name):  # arithmetic on elements, unless the function inside is known
        return _first(rules.functions, kernel_name) or "elementwise"
    return family(fused_name(kernel_name)) or _first(rules.words, kernel_name)


def fused_name(kernel_name: str) -> str | None:
    """Return the canonical name of the heaviest operator in a kernel that TorchInductor wrote, None for other kernels.

    The name of such a kernel lists its operators: ``triton_red_fused_add_mean_mul_0`` adds, multiplies and reduces.
    """
    parts = _FUSED.match(kernel_name)
    if parts is None:
        return None
    kind, operators = parts.groups()
    name = _first(kernel_rules().fused, operators)
    if kind in _REDUCES and (name is None or family(name) in _LIGHT):
        return "fused_reduction"
    return name or ("fused_elementwise" if kind == "poi" else None)


def _first(patterns: NamePatterns, text: str) -> str | None:
    return next((name for name, pattern in patterns if pattern.search(text)), None)
