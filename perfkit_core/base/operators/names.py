"""Canonical operators, their families, and the families of kernels.

A canonical name describes what an operator computes, in any framework: ``aten::addmm`` and ``matmul dygraph`` are both
``matmul``, and their gradients are ``matmul_grad``. Adapters map native names to canonical names
(``Framework.operator_names``). An operator without a mapping has no canonical name and is reported as unmatched.

The family of a kernel follows from its name, with the patterns of ``kernel_families.toml``. What decides is:

- in a generic template of ATen or Paddle, the function inside the template,
- in a kernel of TorchInductor, the fused operators that its name lists,
- in all other kernels, words in the name."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from perfkit_core.base.system.outside_text import convert, read_toml

GRADIENT_SUFFIX: Final = "_grad"
_FUSED: Final = re.compile(
    r"^(?:graph_\d+_)?(?:triton|cpp)_(?:(poi|per|red|tem|for|split_scan)_)?(?:fused_)?(.*?)(?:_\d+)?$"
)
_REDUCES: Final = ("per", "red")
"""Kinds of TorchInductor kernels that contain a reduction."""
_LIGHT: Final = ("elementwise", "activation", "cast", "copy", "layout")
"""Families of fast operators. If a fused kernel contains a reduction and otherwise only such operators, the reduction
takes most of the time. The canonical name of the kernel is then ``fused_reduction``."""

_FAMILIES_FILE: Final = "perfkit_core.base.operators/families.toml"
_Groups = dict[str, tuple[str, ...]]


def _group_of(groups: _Groups, where: str) -> dict[str, str]:
    """Return a mapping from each member to its group. Raises ValueError for a member that is listed twice."""
    table: dict[str, str] = {}
    for group, members in groups.items():
        for member in members:
            if member in table:
                raise ValueError(f"{where}: {member} is listed under {table[member]} and under {group}")
            table[member] = group
    return table


FAMILIES: Final = convert(read_toml("perfkit_core.base.operators", "families.toml"), _Groups, _FAMILIES_FILE)
"""Canonical names of the operators of each family, in the order of the file."""

_FAMILY: Final = _group_of(FAMILIES, _FAMILIES_FILE)

CANONICAL: Final = frozenset(_FAMILY)
"""Canonical names of all operators. The names of their gradients, such as ``matmul_grad``, are not listed."""

CONTAINER_FAMILIES: Final = ("control_flow", "compiled_region", "custom_function")
"""Families of operators that only run other operators."""


def is_canonical(name: str) -> bool:
    """Return whether a name is canonical. The name of a canonical operator's gradient counts as canonical."""
    return family(name) is not None


def is_container(name: str) -> bool:
    """Return whether a canonical operator only runs other operators, as a branch or a compiled region does."""
    return family(name) in CONTAINER_FAMILIES


def family(op_name: str | None) -> str | None:
    """Return the family of a canonical operator or of its gradient, None for other names."""
    if op_name is None:
        return None
    return _FAMILY.get(op_name) or _FAMILY.get(op_name.removesuffix(GRADIENT_SUFFIX))


PRODUCT_FAMILIES: Final = ("matmul", "conv", "attention", "rnn", "mixture_of_experts")
"""Families of operators and kernels that compute matrix products."""
_NO_PRODUCTS: Final = frozenset(("outer", "rotary_embedding", "kv_cache"))
"""Operators of these families without matrix products."""


def is_product(op_name: str | None) -> bool:
    """Return whether a canonical operator, or the gradient of one, computes matrix products."""
    bare = (op_name or "").removesuffix(GRADIENT_SUFFIX)
    return family(bare) in PRODUCT_FAMILIES and bare not in _NO_PRODUCTS


class NamePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a family or canonical operator, and regular expressions for the texts that belong to it."""

    name: str
    patterns: tuple[str, ...]
    ignore_case: bool = False


NamePatterns = tuple[tuple[str, re.Pattern[str]], ...]


def compile_patterns(entries: tuple[NamePattern, ...]) -> NamePatterns:
    """Return (name, compiled pattern) for each entry. The first matching pattern decides."""
    return tuple(
        (entry.name, re.compile("|".join(entry.patterns), re.IGNORECASE if entry.ignore_case else 0))
        for entry in entries
    )


class _NamesFile(msgspec.Struct, forbid_unknown_fields=True):
    names: _Groups
    patterns: dict[str, tuple[NamePattern, ...]] = {}


@dataclass(frozen=True, slots=True)
class NativeNames:
    """Operator names of a framework. ``names`` maps native names to canonical names. ``patterns`` maps groups
    such as ``libraries`` to regular expressions for further native names."""

    names: Mapping[str, str]
    patterns: Mapping[str, NamePatterns]


@functools.cache
def native_names(package: str) -> NativeNames:
    """Return the content of ``operator_names.toml`` in an adapter's package. Raises ValueError if the file has wrong
    fields or lists a native name twice."""
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
    """Patterns of kernel names, from ``kernel_families.toml``."""

    templates: re.Pattern[str]
    functions: NamePatterns  # (family, pattern for the function inside a template)
    fused: NamePatterns  # (canonical operator, pattern for the operators in the name of a fused kernel)
    words: NamePatterns  # (family, pattern for words in the name of any other kernel)


@functools.cache
def kernel_rules() -> KernelRules:
    tables = read_toml("perfkit_core.base.operators", "kernel_families.toml")
    file = convert(tables, _RulesFile, "perfkit_core.base.operators/kernel_families.toml")
    functions, fused, words = map(compile_patterns, (file.functions, file.fused, file.words))
    return KernelRules(re.compile("|".join(file.templates)), functions, fused, words)


@functools.lru_cache(maxsize=65536)
def kernel_family(kernel_name: str) -> str | None:
    """Return the family of a kernel, None if the name does not show the family."""
    rules = kernel_rules()
    if rules.templates.search(kernel_name):
        return _first(rules.functions, kernel_name) or "elementwise"
    return family(fused_name(kernel_name)) or _first(rules.words, kernel_name)


def fused_name(kernel_name: str) -> str | None:
    """Return the canonical name of the operator that takes most of the time in a TorchInductor kernel such as
    ``triton_red_fused_add_mean_mul_0`` or ``graph_0_cpp_fused_add_mul_1``. None for other kernels and operators."""
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


_LONGEST_NAME: Final = 12
"""Maximum number of words in an operator's name."""


def joined_operators(text: str, is_operator: Callable[[str], bool], ascending: bool = False) -> list[tuple[str, bool]]:
    """Return the operators whose names ``text`` joins with ``_``, each with whether it is known.

    As their names contain ``_`` too, the fewest known operators that give the text are taken, the first ones as long as
    possible. Consecutive words that are no operators are one name. ``ascending``: names are sorted, each once."""
    words = text.split("_")
    # for each number of words: the cost, the negative lengths of the names, and the names
    best: list[tuple[int, tuple[int, ...], tuple[tuple[str, bool], ...]]] = [(0, (), ())]
    for end in range(1, len(words) + 1):
        cost, lengths, before = best[end - 1]
        options = [(cost + len(words) + 1, (*lengths, -1), (*before, (words[end - 1], False)))]
        for start in range(max(0, end - _LONGEST_NAME), end):
            cost, lengths, before = best[start]
            name = "_".join(words[start:end])
            if is_operator(name) and not (ascending and before and before[-1][0] >= name):
                options.append((cost + 1, (*lengths, start - end), (*before, (name, True))))
        best.append(min(options))
    parts: list[tuple[str, bool]] = []
    for name, is_known in best[-1][2]:
        if not is_known and parts and not parts[-1][1]:
            parts[-1] = f"{parts[-1][0]}_{name}", False
        elif name:
            parts.append((name, is_known))
    return parts
