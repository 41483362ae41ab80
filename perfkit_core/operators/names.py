"""Canonical operator names, their families (``families.toml``), and the tables by which adapters map to them.

A canonical name means what an operator computes, not how: ``aten::addmm`` and ``matmul dygraph`` are both ``matmul``.
Its gradient is ``matmul_grad``, whichever node or kernel computes it. Adapters map with the hook
``perfkit_operator_names``; a native name without a canonical one stays null and shows up as unmatched.

The vocabulary of canonical operator names, for adapters and plugins: :mod:`perfkit_core.operators.names`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from perfkit_core.system.toml_files import convert, read_toml

GRADIENT_SUFFIX: Final = "_grad"

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
"""Family → the canonical names in it, in the order of the file."""

_FAMILY: Final = _group_of(FAMILIES, _FAMILIES_FILE)

CANONICAL: Final = frozenset(_FAMILY)
"""All canonical names, without those of gradients."""

CONTAINER_FAMILIES: Final = ("control_flow", "compiled_region", "custom_function")
"""Families of what only runs other operators: an operator inside has a family of its own."""

CONTAINERS: Final = frozenset(name for family in CONTAINER_FAMILIES for name in FAMILIES[family])
"""Canonical names of what only runs other operators: a branch, a compiled region."""


def is_canonical(name: str) -> bool:
    """Return whether ``name`` is canonical, as it is or as a gradient."""
    return name in CANONICAL or name.removesuffix(GRADIENT_SUFFIX) in CANONICAL


def is_container(name: str) -> bool:
    """Return whether a canonical name stands for what only runs other operators."""
    return name.removesuffix(GRADIENT_SUFFIX) in CONTAINERS


def family(op_name: str | None) -> str | None:
    """Return the family of a canonical name; a gradient is in its operator's family. None for other names."""
    if op_name is None:
        return None
    return _FAMILY.get(op_name) or _FAMILY.get(op_name.removesuffix(GRADIENT_SUFFIX))


class NamePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name, and the regular expressions of which one must be found for it."""

    name: str
    patterns: tuple[str, ...]
    ignore_case: bool = False


NamePatterns = tuple[tuple[str, re.Pattern[str]], ...]


def compile_patterns(entries: tuple[NamePattern, ...]) -> NamePatterns:
    """Return each entry's name with one compiled pattern, in the same order: the first that matches decides."""
    return tuple(
        (entry.name, re.compile("|".join(entry.patterns), re.IGNORECASE if entry.ignore_case else 0))
        for entry in entries
    )


class _NamesFile(msgspec.Struct, forbid_unknown_fields=True):
    """``operator_names.toml``: canonical name → native names, and patterns."""

    names: _Groups
    patterns: dict[str, tuple[NamePattern, ...]] = {}


@dataclass(frozen=True, slots=True)
class NativeNames:
    """A framework's operator names: ``names`` maps native to canonical, ``patterns`` is for all other native names."""

    names: Mapping[str, str]
    patterns: Mapping[str, NamePatterns]


@functools.cache
def native_names(package: str) -> NativeNames:
    """Return the names in ``operator_names.toml`` of an adapter's package, which is parsed at the first call.

    Raises ValueError where the file does not fit, and for a native name that is listed twice.
    """
    where = f"{package}/operator_names.toml"
    file = convert(read_toml(package, "operator_names.toml"), _NamesFile, where)
    patterns = {kind: compile_patterns(entries) for kind, entries in file.patterns.items()}
    return NativeNames(_group_of(file.names, where), patterns)


__all__ = ["CANONICAL", "CONTAINERS", "GRADIENT_SUFFIX", "is_canonical", "is_container"]
