"""What a column measures, by its name: the family of its units, and the quantity that its statistics have in common.

``*_ns`` durations, ``bytes``/``*_bytes`` sizes, ``*_bytes_per_s`` rates, ``ratio``/``*_ratio`` shares;
``flops``/``*_flops`` operations; ``*_tflop_per_s`` and ``*_gb_per_s`` are peaks of devices.
"""

from __future__ import annotations

from typing import Final

from perfkit_core.language.units import FAMILIES, OPERATIONS, SHARES, SIZES, TIME_UNITS, TIMES, Family, Unit, family

__all__ = [
    "FAMILIES", "OPERATIONS", "SHARES", "SIZES", "TIMES", "TIME_UNITS", "Family", "Unit", "family", "is_term",
    "quantity", "stem",
]  # fmt: skip

_STATISTICS: Final = frozenset(
    ("total", "self", "avg", "mean", "median", "min", "max", "base", "other", "difference", "before", "now", "dur",
     "low", "high", "noise")
)  # fmt: skip
"""Words that do not change what is measured, only which number of it is told."""
_PARTS: Final = frozenset(("count_effect", "per_call_effect", "time_so_far"))
"""The same of several words: what a difference is made of, and where it has led to."""
_TERMS: Final = frozenset(("base", "other", "difference"))


def stem(name: str) -> str:
    """A column's name without the suffix of its family: ``self_cpu_ns`` → ``self_cpu``."""
    found = family(name)
    return name.removesuffix(found.suffix).rstrip("_") if found else name


def is_term(name: str) -> bool:
    """Return whether a column is a term of a difference: base, other, difference, and what it is made of."""
    return stem(name) in _PARTS or not _TERMS.isdisjoint(name.split("_"))


def quantity(name: str) -> tuple[str, str]:
    """What a column measures, the same for all its statistics: ``min_cpu_ns`` and ``total_cpu_ns`` → ("ns", "cpu")."""
    found = family(name)
    told = stem(name)
    words = () if told in _PARTS else (word for word in told.split("_") if word not in _STATISTICS)
    return found.suffix if found else "", "_".join(words)
