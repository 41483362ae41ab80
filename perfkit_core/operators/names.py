"""Canonical operators, their families, and the families of kernels.

A canonical name means what an operator computes, not how: ``aten::addmm`` and ``matmul dygraph`` are both ``matmul``,
and the gradient of both is ``matmul_grad``. Adapters map native names with the hook ``perfkit_operator_names``; names
without a mapping stay null and are reported as unmatched.

Kernels are looked up in ``kernel_families.toml`` in this order: by the function inside a generic template of ATen or
Paddle, by the operators that TorchInductor fused, by words in the name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from perfkit_core.system.packages import convert, read_toml

GRADIENT_SUFFIX: Final = "_grad"
_FUSED: Final = re.compile(r"^triton_(?:(poi|per|red|tem|for|split_scan)_)?(?:fused_)?(.*?)(?:_\d+)?$")
_REDUCES: Final = ("per", "red")
"""Kinds of fused kernels that reduce, whichever operators their names list."""
_LIGHT: Final = ("elementwise", "activation", "cast", "copy", "layout")
"""Families that a fused kernel with a reduction does not belong to, as the reduction takes most of the time."""

_FAMILIES_FILE: Final = "perfkit_core.operators/families.toml"
_Groups = dict[str, tuple[str, ...]]


def _group_of(groups: _Groups, where: str) -> dict[str, str]:
    """Return member → group. Raises ValueError for a member that is listed twice."""
    table: dict[str, str] = {}
    for group, members in groups.items():
        for member in members:
            if member in table:
                raise ValueError(f"{where}: {member} is listed under {table[member]} and under {group}")
            table[member] = group
    return table


FAMILIES: Final = convert(read_toml("perfkit_core.operators", "families.toml"), _Groups, _FAMILIES_FILE)
"""Family → its canonical names, in the order of the file."""

_FAMILY: Final = _group_of(FAMILIES, _FAMILIES_FILE)

CANONICAL: Final = frozenset(_FAMILY)
"""Canonical names without gradients."""

CONTAINER_FAMILIES: Final = ("control_flow", "compiled_region", "custom_function")
"""Families of operators that only run other operators, which have families of their own."""

CONTAINERS: Final = frozenset(name for family in CONTAINER_FAMILIES for name in FAMILIES[family])


def is_canonical(name: str) -> bool:
    """Return whether a name, or the operator of which it is the gradient, is canonical."""
    return name in CANONICAL or name.removesuffix(GRADIENT_SUFFIX) in CANONICAL


def is_container(name: str) -> bool:
    """Return whether a canonical operator only runs others: a branch, a compiled region."""
    return name.removesuffix(GRADIENT_SUFFIX) in CONTAINERS


def family(op_name: str | None) -> str | None:
    """Return the family of a canonical name or gradient, None for other names."""
    if op_name is None:
        return None
    return _FAMILY.get(op_name) or _FAMILY.get(op_name.removesuffix(GRADIENT_SUFFIX))


class NamePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name, and regular expressions of which one must match for it."""

    name: str
    patterns: tuple[str, ...]
    ignore_case: bool = False


NamePatterns = tuple[tuple[str, re.Pattern[str]], ...]


def compile_patterns(entries: tuple[NamePattern, ...]) -> NamePatterns:
    """Return each entry's name with one compiled pattern, in the same order. The first match decides."""
    return tuple(
        (entry.name, re.compile("|".join(entry.patterns), re.IGNORECASE if entry.ignore_case else 0))
        for entry in entries
    )


class _NamesFile(msgspec.Struct, forbid_unknown_fields=True):
    """Structure of ``operator_names.toml``: canonical name → native names, and patterns."""

    names: _Groups
    patterns: dict[str, tuple[NamePattern, ...]] = {}


@dataclass(frozen=True, slots=True)
class NativeNames:
    """A framework's operator names: ``names`` maps native to canonical names; ``patterns`` match all others."""

    names: Mapping[str, str]
    patterns: Mapping[str, NamePatterns]


@functools.cache
def native_names(package: str) -> NativeNames:
    """Return the names in ``operator_names.toml`` of an adapter's package, parsed once. Raises ValueError if the file
    has another structure or lists a native name twice."""
    where = f"{package}/operator_names.toml"
    file = convert(read_toml(package, "operator_names.toml"), _NamesFile, where)
    patterns = {kind: compile_patterns(entries) for kind, entries in file.patterns.items()}
    return NativeNames(_group_of(file.names, where), patterns)


class _RulesFile(msgspec.Struct, forbid_unknown_fields=True):
    templates: tuple[str, ...]
    functions: tuple[NamePattern, ...]
    fused: tuple[NamePattern, ...]
    words: tuple[NamePattern, ...]


@dataclass(frozen=True, slots=True)
class KernelRules:
    """Patterns of kernel names. ``functions`` and ``words`` name families, ``fused`` canonical operators."""

    templates: re.Pattern[str]
    functions: NamePatterns
    fused: NamePatterns
    words: NamePatterns


@functools.cache
def kernel_rules() -> KernelRules:
    tables = read_toml("perfkit_core.operators", "kernel_families.toml")
    file = convert(tables, _RulesFile, "perfkit_core.operators/kernel_families.toml")
    functions, fused, words = map(compile_patterns, (file.functions, file.fused, file.words))
    return KernelRules(re.compile("|".join(file.templates)), functions, fused, words)


@functools.lru_cache(maxsize=65536)
def kernel_family(kernel_name: str) -> str | None:
    """Return the family of a kernel, None if its name does not show it."""
    rules = kernel_rules()
    if rules.templates.search(kernel_name):  # elementwise, unless the function inside is known
        return _first(rules.functions, kernel_name) or "elementwise"
    return family(fused_name(kernel_name)) or _first(rules.words, kernel_name)


def fused_name(kernel_name: str) -> str | None:
    """Return the canonical name of the heaviest operator in a kernel of TorchInductor, None for other kernels. The name
    lists the operators: ``triton_red_fused_add_mean_mul_0`` adds, multiplies and reduces."""
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
