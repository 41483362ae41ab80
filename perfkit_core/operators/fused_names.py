"""Operators in the name of a fused kernel, which joins their names with ``_``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_LONGEST: Final = 12
"""Maximum number of words in an operator's name."""


def operators(text: str, known: Callable[[str], bool], ascending: bool = False) -> list[tuple[str, bool]]:
    """Return the operators that ``text`` joins, each with whether it is known.

    As their names contain ``_`` too, the fewest known operators that give the text are taken, the first ones as long as
    possible. Consecutive words that are no operators are one name. ``ascending``: the names are in alphabetical order,
    each once."""
    words = text.split("_")
    # for each number of words: the cost, the negative lengths of the names, and the names
    best: list[tuple[int, tuple[int, ...], tuple[tuple[str, bool], ...]]] = [(0, (), ())]
    for end in range(1, len(words) + 1):
        cost, lengths, before = best[end - 1]
        options = [(cost + len(words) + 1, (*lengths, -1), (*before, (words[end - 1], False)))]
        for start in range(max(0, end - _LONGEST), end):
            cost, lengths, before = best[start]
            name = "_".join(words[start:end])
            if known(name) and not (ascending and before and before[-1][0] >= name):
                options.append((cost + 1, (*lengths, start - end), (*before, (name, True))))
        best.append(min(options))
    found: list[tuple[str, bool]] = []
    for name, is_known in best[-1][2]:
        if not is_known and found and not found[-1][1]:
            found[-1] = f"{found[-1][0]}_{name}", False
        elif name:
            found.append((name, is_known))
    return found
